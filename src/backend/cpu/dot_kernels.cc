// Products of few rows with weight rows as they lie in the file: bound by the reading of the weights.
#include "backend/cpu/kernels.h"
#include "hwy/cache_control.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/dot_kernels.cc"
#include "hwy/foreach_target.h"
//
#include "backend/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::cpu::HWY_NAMESPACE {
namespace {

// Weight rows and rows that share loads. One vector of partial sums a pair, whatever the tile, so that a pair's sum has
// one order: lane l adds elements l, l + lanes, ... in ascending order, then the lanes are added, then
// what is left of k.
constexpr int kWeightRows = 4;
constexpr int kRows = HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3 ? 2 : 4;

// How far ahead of the reading weights are fetched: the processor's own prefetching reached half the speed.
constexpr int64_t kAheadElements = 4096;

template <int kW, int kX, bool kAhead, typename T>
HWY_NOINLINE void DotTile(const T* HWY_RESTRICT w, int64_t k, const float* const* x, float* HWY_RESTRICT out,
                          int64_t out_stride) {
  const int64_t lanes = Lanes();
  V sums[kX][kW];
#pragma GCC unroll 4
  for (int r = 0; r < kX; ++r) {
#pragma GCC unroll 4
    for (int j = 0; j < kW; ++j) sums[r][j] = hn::Zero(kF);
  }
  int64_t i = 0;
  for (; i + lanes <= k; i += lanes) {
    V row[kW];
#pragma GCC unroll 4
    for (int j = 0; j < kW; ++j) {
      row[j] = Load(w + j * k + i);
      if (kAhead) hwy::Prefetch(w + j * k + i + kAheadElements);
    }
#pragma GCC unroll 4
    for (int r = 0; r < kX; ++r) {
      const V v = Load(x[r] + i);
#pragma GCC unroll 4
      for (int j = 0; j < kW; ++j) sums[r][j] = hn::MulAdd(v, row[j], sums[r][j]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kX; ++r) {
#pragma GCC unroll 4
    for (int j = 0; j < kW; ++j) out[r * out_stride + j] = Sum(sums[r][j]);
  }
  for (; i < k; ++i)
    for (int r = 0; r < kX; ++r)
      for (int j = 0; j < kW; ++j) out[r * out_stride + j] += x[r][i] * ToFloat(w[j * k + i]);
}

template <int kW, typename T>
HWY_INLINE void DotAllRows(const T* w, int64_t k, const float* const* x, int64_t m, float* out, int64_t out_stride) {
  int64_t r = m % kRows;
  const auto first = [&]<int kX>() HWY_ATTR { DotTile<kW, kX, true>(w, k, x, out, out_stride); };
  switch (r) {
    case 1:
      first.template operator()<1>();
      break;
    case 2:
      first.template operator()<2>();
      break;
    case 3:
      first.template operator()<3>();
      break;
    default:
      first.template operator()<kRows>();
      r = kRows;
  }
  for (; r < m; r += kRows) DotTile<kW, kRows, false>(w, k, x + r, out + r * out_stride, out_stride);
}

template <typename T>
void DotAll(const T* w, int64_t n, int64_t k, const float* const* x, int64_t m, float* out, int64_t out_stride) {
  int64_t j = 0;
  for (; j + kWeightRows <= n; j += kWeightRows) DotAllRows<kWeightRows>(w + j * k, k, x, m, out + j, out_stride);
  for (; j < n; ++j) DotAllRows<1>(w + j * k, k, x, m, out + j, out_stride);
}

}  // namespace

void Dot(const void* w, DType type, int64_t n, int64_t k, const float* const* x, int64_t m, float* out,
         int64_t out_stride) {
  switch (type) {
    case DType::kBf16:
      return DotAll(static_cast<const Bf16*>(w), n, k, x, m, out, out_stride);
    case DType::kF16:
      return DotAll(static_cast<const F16*>(w), n, k, x, m, out, out_stride);
    default:
      return DotAll(static_cast<const float*>(w), n, k, x, m, out, out_stride);
  }
}

}  // namespace quire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::cpu {

HWY_EXPORT(Dot);

void DotRows(const void* w, DType type, int64_t n, int64_t k, const float* const* x, int64_t m, float* out,
             int64_t out_stride) {
  HWY_DYNAMIC_DISPATCH(Dot)(w, type, n, k, x, m, out, out_stride);
}

}  // namespace quire::cpu
#endif
