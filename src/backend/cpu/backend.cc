#include "backend/cpu/backend.h"

#include <algorithm>

#include "backend/cpu/cpu.h"

namespace quire {

std::unique_ptr<Backend> CreateCpuBackend(const BackendOptions& options) {
  return std::make_unique<cpu::CpuBackend>(options, cpu::ChooseIsa());
}

namespace cpu {
namespace {

BackendInfo Describe(const BackendOptions& options, const Isa& isa) {
  std::string device = (isa.processor.empty() ? "" : isa.processor + ", ") + isa.name;
  if (options.dtype == DType::kBf16 && !isa.fast_bf16) device += ", products of prompt rows in float32";
  return {"cpu", device, options.dtype, options.threads > 0 ? options.threads : AvailableThreads()};
}

}  // namespace

CpuBackend::CpuBackend(const BackendOptions& options, const Isa& isa)
    : HostBackend(Describe(options, isa)),
      dtype_(options.dtype),
      products_(options.dtype == DType::kBf16 && isa.fast_bf16 ? DType::kBf16 : DType::kF32) {}

CpuKvCache::CpuKvCache(const KvShape& s, DType type)
    : shape(s), dtype(type), memory(static_cast<size_t>(Offset(s.layers, 0, 0)) * SizeOf(type)) {}

std::unique_ptr<KvCache> CpuBackend::CreateKvCache(const KvShape& shape) {
  return std::make_unique<CpuKvCache>(shape, dtype_);
}

void CpuBackend::ForRows(int64_t rows, int64_t width, const std::function<void(int64_t)>& body) {
  constexpr int64_t kJobElements = 16384;
  const int64_t step = std::max<int64_t>(1, kJobElements / std::max<int64_t>(1, width));
  pool().For((rows + step - 1) / step, [&](int64_t job) {
    for (int64_t r = job * step; r < std::min(rows, (job + 1) * step); ++r) body(r);
  });
}

}  // namespace cpu
}  // namespace quire
