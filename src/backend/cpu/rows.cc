// Norms and other work on single rows.
#include <algorithm>
#include <cmath>

#include "backend/cpu/backend.h"

namespace quire::cpu {

void CpuBackend::LayerNorm(Context&, const View& x, const LayerNormWeights& w, const View& out) {
  const int64_t n = x.width();
  ForRows(x.rows(), n, [&](int64_t r) {
    LayerNormRow(x.as<float>() + r * n, Values(w.weight.get()), Values(w.bias.get()), n, w.eps,
                 out.as<float>() + r * n);
  });
}

void CpuBackend::RmsNorm(Context&, const View& x, const RmsNormWeights& w, const View& out) {
  const int64_t n = x.width();
  ForRows(x.rows(), n, [&](int64_t r) {
    RmsNormRow(x.as<float>() + r * n, Values(w.weight.get()), n, w.eps, out.as<float>() + r * n);
  });
}

// Angles in float32, as the published models compute them: position times the float32 inverse frequency.
const float* CpuBackend::AnglesUpTo(float theta, int64_t half, int64_t position) {
  auto at =
      std::find_if(angles_.begin(), angles_.end(), [&](const Angles& a) { return a.theta == theta && a.half == half; });
  if (at == angles_.end()) at = angles_.insert(at, Angles{theta, half, {}});
  const auto known = static_cast<int64_t>(at->values.size()) / (2 * half);
  if (position >= known) {
    const int64_t wanted = std::max(position + 1, std::max<int64_t>(512, 2 * known));
    at->values.resize(static_cast<size_t>(wanted * 2 * half));
    for (int64_t i = 0; i < half; ++i) {
      const float frequency = 1.0f / std::pow(theta, static_cast<float>(2 * i) / static_cast<float>(2 * half));
      for (int64_t p = known; p < wanted; ++p) {
        const float angle = static_cast<float>(p) * frequency;
        at->values[p * 2 * half + i] = std::cos(angle);
        at->values[(p * 2 + 1) * half + i] = std::sin(angle);
      }
    }
  }
  return at->values.data();
}

void CpuBackend::Rope(Context&, const View& x, int first, int count, const View& positions, float theta) {
  const int64_t rows = x.shape[0], heads = x.shape[1], d = x.shape[2], half = d / 2;
  if (rows == 0) return;
  const int32_t* position = positions.as<int32_t>();
  const float* angles = AnglesUpTo(theta, half, *std::max_element(position, position + rows));
  ForRows(rows, heads * d, [&](int64_t r) {
    const float* cosines = angles + position[r] * d;
    for (int64_t h = first; h < first + count; ++h)
      RotateRow(cosines, cosines + half, half, x.as<float>() + (r * heads + h) * d);
  });
}

void CpuBackend::SiluMul(Context&, const View& x, const View& out) {
  const int64_t f = out.width();
  QUIRE_CHECK_EQ(x.width(), 2 * f);
  ForRows(x.rows(), 2 * f, [&](int64_t r) {
    const float* row = x.as<float>() + r * 2 * f;
    SiluMulRow(row, row + f, f, out.as<float>() + r * f);
  });
}

void CpuBackend::AddRows(Context&, const View& x, const Weight& w) {
  const int64_t n = x.width(), period = static_cast<int64_t>(Cast(w).values.size()) / n;
  ForRows(x.rows(), n, [&](int64_t r) { AddRow(Values(&w) + r % period * n, n, x.as<float>() + r * n); });
}

void CpuBackend::CopyRows(Context&, const Weight& table, const View& out) {
  const std::vector<float>& values = Cast(table).values;
  QUIRE_CHECK_EQ(out.elements(), static_cast<int64_t>(values.size()));
  std::copy(values.begin(), values.end(), out.as<float>());
}

}  // namespace quire::cpu
