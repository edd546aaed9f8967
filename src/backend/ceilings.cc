#include "backend/ceilings.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace quire {
namespace {

// Seconds of the fastest of a few runs.
template <typename Body>
double Fastest(Context& c, Body body) {
  using Clock = std::chrono::steady_clock;
  double best = 1e30;
  const auto until = Clock::now() + std::chrono::milliseconds(400);
  for (int i = 0; i < 50; ++i) {
    const auto start = Clock::now();
    body();
    c.stream.Synchronize();
    const auto end = Clock::now();
    best = std::min(best, std::chrono::duration<double>(end - start).count());
    if (i > 0 && end > until) break;
  }
  return best;
}

}  // namespace

Ceilings MeasureCeilings(Backend& backend) {
  const auto stream = backend.CreateStream();
  Arena arena(backend);
  Context c{*stream, arena};
  const DType dtype = backend.activation_dtype();
  Ceilings ceilings;
  bool released = false;

  auto time = [&](Role role, int64_t rows, int64_t k, int64_t n, int64_t prompt_rows) {
    std::vector<Bf16> values(static_cast<size_t>(n * k));
    for (size_t i = 0; i < values.size(); ++i) values[i] = ToBf16(static_cast<float>(i * 37 % 101) / 101 - 0.5f);
    const HostTensor tensor{"", values.data(), DType::kBf16, {n, k}};
    const WeightPtr weight = backend.Prepare(role, {&tensor, 1}, &released);
    const Arena::Scope scope(arena);
    const View x = arena.Take(dtype, {rows, k}), out = arena.Take(dtype, {rows, n});
    const std::vector<float> ones(static_cast<size_t>(rows * k), 1.0f);  // as bytes of either dtype: finite
    backend.CopyIn(c, ones.data(), x);
    return Fastest(c, [&] { backend.Linear(c, x, *weight, nullptr, Activation::kNone, {}, out, prompt_rows); });
  };
  ceilings.product_flops = 2.0 * 4096 * 768 * 3072 / time(Role::kVision, 4096, 768, 3072, kAllPrompt);
  constexpr int64_t kLarge = 65536;  // 256 MiB of bf16: far beyond any cache
  ceilings.read_bytes_per_s = 2.0 * kLarge * 2048 / time(Role::kProjection, 1, 2048, kLarge, 0);
  return ceilings;
}

}  // namespace quire
