// Products with panels.
#include <algorithm>

#include "backend/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/panel_kernels.cc"
#include "hwy/foreach_target.h"
//
#include "backend/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::cpu::HWY_NAMESPACE {
namespace {

// A tile of sums kept in registers: 6 rows by 4 vectors where there are 32 registers, 6 by 2 where there are 16.
// Measured on one core of an Emerald Rapids (AVX-512): 160 GFLOP/s of oneDNN's 165.
constexpr int kTileRows = 6;
constexpr int kTileVectors = HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4 ? 2 : 4;
static_assert(kPanel % (kTileVectors * hn::MaxLanes(F())) == 0);

template <int kRows, int kVectors, typename T>
HWY_INLINE void MultiplyTile(const float* HWY_RESTRICT a, int64_t a_stride, const T* HWY_RESTRICT panel, int64_t k,
                             bool add, float* HWY_RESTRICT c, int64_t c_stride) {
  const int64_t lanes = Lanes();
  V sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[r][v] = add ? Load(c + r * c_stride + v * lanes) : hn::Zero(kF);
  }
  for (int64_t i = 0; i < k; ++i) {
    V w[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) w[v] = Load(panel + i * kPanel + v * lanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const V x = hn::Set(kF, a[r * a_stride + i]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(x, w[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) Store(sums[r][v], c + r * c_stride + v * lanes);
  }
}

template <int kVectors, typename T>
void MultiplyColumns(const float* a, int64_t a_stride, int64_t rows, const T* panel, int64_t k, bool add, float* c,
                     int64_t c_stride) {
  int64_t r = 0;
  const auto tile = [&]<int kRows>() HWY_ATTR {
    MultiplyTile<kRows, kVectors>(a + r * a_stride, a_stride, panel, k, add, c + r * c_stride, c_stride);
  };
  for (; r + kTileRows <= rows; r += kTileRows) tile.template operator()<kTileRows>();
  switch (rows - r) {
    case 1:
      return tile.template operator()<1>();
    case 2:
      return tile.template operator()<2>();
    case 3:
      return tile.template operator()<3>();
    case 4:
      return tile.template operator()<4>();
    case 5:
      return tile.template operator()<5>();
  }
}

// Whole tiles, then single vectors where not more than two are left.
template <typename T>
void Multiply(const float* a, int64_t a_stride, int64_t rows, const T* panel, int64_t k, int64_t columns, bool add,
              float* c, int64_t c_stride) {
  const int64_t lanes = Lanes();
  int64_t j = 0;
  for (; columns - j > 2 * lanes || columns - j >= kTileVectors * lanes; j += kTileVectors * lanes)
    MultiplyColumns<kTileVectors>(a, a_stride, rows, panel + j, k, add, c + j, c_stride);
  for (; j < columns; j += lanes) MultiplyColumns<1>(a, a_stride, rows, panel + j, k, add, c + j, c_stride);
}

#if HWY_TARGET != HWY_SCALAR
// Four 32-bit elements from each of four rows, to columns.
template <typename D, typename LoadRow>
HWY_INLINE void Transpose4(D d, LoadRow load, hn::TFromD<D>* out) {
  const auto a = load(0), b = load(1), e = load(2), f = load(3);
  const auto ae = hn::InterleaveLower(d, a, e), bf = hn::InterleaveLower(d, b, f);
  const auto ae2 = hn::InterleaveUpper(d, a, e), bf2 = hn::InterleaveUpper(d, b, f);
  hn::StoreU(hn::InterleaveLower(d, ae, bf), d, out);
  hn::StoreU(hn::InterleaveUpper(d, ae, bf), d, out + kPanel);
  hn::StoreU(hn::InterleaveLower(d, ae2, bf2), d, out + 2 * kPanel);
  hn::StoreU(hn::InterleaveUpper(d, ae2, bf2), d, out + 3 * kPanel);
}

using F4 = hn::FixedTag<float, 4>;
HWY_INLINE hn::Vec<F4> Load4(const float* p) {
  return hn::LoadU(F4(), p);
}
HWY_INLINE hn::Vec<F4> Load4(const Bf16* p) {
  const hn::FixedTag<uint32_t, 4> whole;
  const auto bits = hn::LoadU(hn::FixedTag<uint16_t, 4>(), reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(F4(), hn::ShiftLeft<16>(hn::PromoteTo(whole, bits)));
}
HWY_INLINE hn::Vec<F4> Load4(const F16* p) {
  const auto half = hn::LoadU(hn::FixedTag<hwy::float16_t, 4>(), reinterpret_cast<const hwy::float16_t*>(p));
  return hn::PromoteTo(F4(), half);
}
HWY_INLINE hn::Vec<hn::FixedTag<uint32_t, 4>> Load4(const uint32_t* p) {
  return hn::LoadU(hn::FixedTag<uint32_t, 4>(), p);
}
#endif

// out[i, j] = in[j, i]. Groups of 16 rows, so that a line of the output is written whole.
template <typename In, typename Out, typename Convert>
void Transpose(const In* in, int64_t stride, int64_t n, int64_t k, Out* out, Convert convert) {
  constexpr int64_t kGroup = 16;
  for (int64_t first = 0; first < kPanel; first += kGroup) {
    const int64_t last = std::min(first + kGroup, n);
    int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
    const hn::FixedTag<Out, 4> d;
    if (last - first == kGroup) {
      for (; i + 4 <= k; i += 4) {
#pragma GCC unroll 4
        for (int64_t j = first; j < last; j += 4)
          Transpose4(
              d, [&](int64_t r) HWY_ATTR { return Load4(in + (j + r) * stride + i); }, out + i * kPanel + j);
      }
    }
#endif
    for (; i < k; ++i) {
      for (int64_t j = first; j < last; ++j) out[i * kPanel + j] = convert(in[j * stride + i]);
      for (int64_t j = std::max(first, last); j < first + kGroup; ++j) out[i * kPanel + j] = 0;
    }
  }
}

template <typename T>
void PackTyped(const void* w, int64_t stride, int64_t n, int64_t k, float* panel) {
  Transpose(static_cast<const T*>(w), stride, n, k, panel, [](T x) { return ToFloat(x); });
}

}  // namespace

void MultiplyFloat(const float* a, int64_t a_stride, int64_t rows, const float* panel, int64_t k, int64_t columns,
                   bool add, float* c, int64_t c_stride) {
  Multiply(a, a_stride, rows, panel, k, columns, add, c, c_stride);
}
void MultiplyBf16(const float* a, int64_t a_stride, int64_t rows, const Bf16* panel, int64_t k, int64_t columns,
                  bool add, float* c, int64_t c_stride) {
  Multiply(a, a_stride, rows, panel, k, columns, add, c, c_stride);
}

void Pack(const void* w, DType type, int64_t stride, int64_t n, int64_t k, float* panel) {
  switch (type) {
    case DType::kBf16:
      return PackTyped<Bf16>(w, stride, n, k, panel);
    case DType::kF16:
      return PackTyped<F16>(w, stride, n, k, panel);
    default:
      return PackTyped<float>(w, stride, n, k, panel);
  }
}
void PackTwos(const uint32_t* w, int64_t stride, int64_t n, int64_t k, uint32_t* panel) {
  Transpose(w, stride, n, k, panel, [](uint32_t x) { return x; });
}

}  // namespace quire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::cpu {

HWY_EXPORT(MultiplyFloat);
HWY_EXPORT(MultiplyBf16);
HWY_EXPORT(Pack);
HWY_EXPORT(PackTwos);

void MultiplyPanel(const float* a, int64_t a_stride, int64_t rows, const float* panel, int64_t k, int64_t columns,
                   bool add, float* c, int64_t c_stride) {
  HWY_DYNAMIC_DISPATCH(MultiplyFloat)(a, a_stride, rows, panel, k, columns, add, c, c_stride);
}
void MultiplyPanel(const float* a, int64_t a_stride, int64_t rows, const Bf16* panel, int64_t k, int64_t columns,
                   bool add, float* c, int64_t c_stride) {
  HWY_DYNAMIC_DISPATCH(MultiplyBf16)(a, a_stride, rows, panel, k, columns, add, c, c_stride);
}
void PackPanel(const void* w, DType type, int64_t stride, int64_t n, int64_t k, float* panel) {
  HWY_DYNAMIC_DISPATCH(Pack)(w, type, stride, n, k, panel);
}
void PackPairs(const Bf16* w, int64_t stride, int64_t n, int64_t k, Bf16* panel) {
  HWY_DYNAMIC_DISPATCH(PackTwos)
  (reinterpret_cast<const uint32_t*>(w), stride / 2, n, k / 2, reinterpret_cast<uint32_t*>(panel));
}

}  // namespace quire::cpu
#endif
