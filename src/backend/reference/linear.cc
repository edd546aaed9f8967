// Products and convolutions.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/reference/backend.h"

namespace quire::reference {
namespace {

constexpr int64_t kRowBlock = 8;       // rows that share one pass over the weights
constexpr int64_t kColumnBlock = 256;  // outputs whose sums stay in the first cache
constexpr int64_t kSumBlock = 128;     // terms of a partial sum: keeps float32 rounding near that of a pairwise sum

float Activate(float x, Activation act) {
  switch (act) {
    case Activation::kNone:
      return x;
    case Activation::kGelu:
      return 0.5f * x * (1.0f + std::erf(x * 0.70710678118654752f));
    case Activation::kQuickGelu:
      return x / (1.0f + std::exp(-1.702f * x));
  }
  return x;
}

}  // namespace

QUIRE_CLONES void Multiply(const float* x, int64_t rows, int64_t k, const float* w, int64_t n, float* out) {
  float part[kRowBlock][kColumnBlock];
  for (int64_t m0 = 0; m0 < rows; m0 += kRowBlock) {
    const int64_t m = std::min(kRowBlock, rows - m0);
    for (int64_t n0 = 0; n0 < n; n0 += kColumnBlock) {
      const int64_t width = std::min(kColumnBlock, n - n0);
      for (int64_t r = 0; r < m; ++r) std::fill_n(out + (m0 + r) * n + n0, width, 0.0f);
      for (int64_t k0 = 0; k0 < k; k0 += kSumBlock) {
        for (int64_t r = 0; r < m; ++r) std::fill_n(part[r], width, 0.0f);
        for (int64_t i = k0; i < std::min(k, k0 + kSumBlock); ++i) {
          const float* row = w + i * n + n0;
          for (int64_t r = 0; r < m; ++r) {
            const float value = x[(m0 + r) * k + i];
            float* sum = part[r];
            for (int64_t j = 0; j < width; ++j) sum[j] += value * row[j];
          }
        }
        for (int64_t r = 0; r < m; ++r)
          for (int64_t j = 0; j < width; ++j) out[(m0 + r) * n + n0 + j] += part[r][j];
      }
    }
  }
}

void ReferenceBackend::Linear(Context&, const View& x, const Weight& weight, const Weight* bias, Activation act,
                              const View& residual, const View& out, int64_t) {
  const ReferenceWeight& w = Cast(weight);
  const int64_t rows = x.rows(), k = w.k(), n = w.n();
  QUIRE_CHECK_EQ(x.width(), k);
  QUIRE_CHECK_EQ(out.width(), n);
  QUIRE_CHECK_EQ(out.rows(), rows);
  pool().For((rows + kRowBlock - 1) / kRowBlock, [&](int64_t block) {
    const int64_t first = block * kRowBlock, count = std::min(kRowBlock, rows - first);
    std::vector<float> product(static_cast<size_t>(count * n));  // apart: residual may be out
    Multiply(x.as<float>() + first * k, count, k, w.values.data(), n, product.data());
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t j = 0; j < n; ++j) {
        float value = product[r * n + j];
        if (bias) value += Cast(*bias).values[j];
        value = Activate(value, act);
        const int64_t at = (first + r) * n + j;
        if (!residual.empty()) value = residual.as<float>()[at] + value;
        out.as<float>()[at] = value;
      }
    }
  });
}

void ReferenceBackend::Conv2d(Context&, const View& x, const Weight& weight, const Weight* bias, int kernel, int stride,
                              int pad, const View& out) {
  const ReferenceWeight& w = Cast(weight);
  const int64_t height = x.shape[1], width = x.shape[2], in = x.shape[3];
  const int64_t out_height = out.shape[1], out_width = out.shape[2], channels = out.shape[3];
  QUIRE_CHECK_EQ(w.k(), in * kernel * kernel);
  pool().For(out.shape[0] * out_height, [&](int64_t line) {
    const int64_t b = line / out_height, oy = line % out_height;
    std::vector<float> patches(static_cast<size_t>(out_width * w.k()), 0.0f);
    for (int64_t ox = 0; ox < out_width; ++ox) {
      for (int ky = 0; ky < kernel; ++ky) {
        for (int kx = 0; kx < kernel; ++kx) {
          const int64_t iy = oy * stride + ky - pad, ix = ox * stride + kx - pad;
          if (iy < 0 || iy >= height || ix < 0 || ix >= width) continue;
          std::copy_n(x.as<float>() + ((b * height + iy) * width + ix) * in, in,
                      patches.begin() + ox * w.k() + (ky * kernel + kx) * in);
        }
      }
    }
    float* sums = out.as<float>() + line * out_width * channels;
    Multiply(patches.data(), out_width, w.k(), w.values.data(), channels, sums);
    if (bias)
      for (int64_t i = 0; i < out_width * channels; ++i) sums[i] += Cast(*bias).values[i % channels];
  });
}

}  // namespace quire::reference
