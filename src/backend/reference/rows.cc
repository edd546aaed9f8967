// Norms and other work on single rows.
#include <algorithm>
#include <cmath>

#include "backend/reference/backend.h"

namespace quire::reference {

void ReferenceBackend::LayerNorm(Context&, const View& x, const LayerNormWeights& w, const View& out) {
  const int64_t n = x.width();
  const float* weight = Cast(*w.weight).values.data();
  const float* bias = Cast(*w.bias).values.data();
  pool().For(x.rows(), [&](int64_t r) {
    const float* row = x.as<float>() + r * n;
    float* to = out.as<float>() + r * n;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; ++i) sum += row[i];
    const double mean = sum / static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i) squares += (row[i] - mean) * (row[i] - mean);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + w.eps);
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>((row[i] - mean) * scale) * weight[i] + bias[i];
  });
}

void ReferenceBackend::RmsNorm(Context&, const View& x, const RmsNormWeights& w, const View& out) {
  const int64_t n = x.width();
  const float* weight = Cast(*w.weight).values.data();
  pool().For(x.rows(), [&](int64_t r) {
    const float* row = x.as<float>() + r * n;
    float* to = out.as<float>() + r * n;
    double squares = 0;
    for (int64_t i = 0; i < n; ++i) squares += static_cast<double>(row[i]) * row[i];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + w.eps);
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(row[i] * scale) * weight[i];
  });
}

void ReferenceBackend::Rope(Context&, const View& x, int first, int count, const View& positions, float theta) {
  const int64_t heads = x.shape[1], half = x.shape[2] / 2;
  for (int64_t r = 0; r < x.shape[0]; ++r) {
    const auto position = static_cast<float>(positions.as<int32_t>()[r]);
    for (int64_t i = 0; i < half; ++i) {
      const float angle = position * (1.0f / std::pow(theta, static_cast<float>(2 * i) / static_cast<float>(2 * half)));
      const float cosine = std::cos(angle), sine = std::sin(angle);
      for (int64_t h = first; h < first + count; ++h) {
        float* v = x.as<float>() + (r * heads + h) * 2 * half;
        const float a = v[i], b = v[i + half];
        v[i] = a * cosine - b * sine;
        v[i + half] = b * cosine + a * sine;
      }
    }
  }
}

void ReferenceBackend::SiluMul(Context&, const View& x, const View& out) {
  const int64_t f = out.width();
  pool().For(x.rows(), [&](int64_t r) {
    const float* row = x.as<float>() + r * 2 * f;
    for (int64_t i = 0; i < f; ++i) out.as<float>()[r * f + i] = row[i] / (1.0f + std::exp(-row[i])) * row[f + i];
  });
}

void ReferenceBackend::AddRows(Context&, const View& x, const Weight& w) {
  const std::vector<float>& values = Cast(w).values;
  float* data = x.as<float>();
  for (int64_t i = 0; i < x.elements(); ++i) data[i] += values[static_cast<size_t>(i) % values.size()];
}

void ReferenceBackend::CopyRows(Context&, const Weight& table, const View& out) {
  QUIRE_CHECK_EQ(out.elements(), static_cast<int64_t>(Cast(table).values.size()));
  std::copy(Cast(table).values.begin(), Cast(table).values.end(), out.as<float>());
}

}  // namespace quire::reference
