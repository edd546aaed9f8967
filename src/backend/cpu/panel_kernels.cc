// Products with panels.
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
constexpr int kTileVectors = HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3 ? 2 : 4;

template <int kRows, typename T>
HWY_INLINE void MultiplyTile(const float* HWY_RESTRICT a, int64_t a_stride, const T* HWY_RESTRICT panel, int64_t k,
                             bool add, float* HWY_RESTRICT c, int64_t c_stride) {
  const int64_t lanes = Lanes();
  V sums[kRows][kTileVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) sums[r][v] = add ? Load(c + r * c_stride + v * lanes) : hn::Zero(kF);
  }
  for (int64_t i = 0; i < k; ++i) {
    V w[kTileVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) w[v] = Load(panel + i * kPanel + v * lanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const V x = hn::Set(kF, a[r * a_stride + i]);
#pragma GCC unroll 4
      for (int v = 0; v < kTileVectors; ++v) sums[r][v] = hn::MulAdd(x, w[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) Store(sums[r][v], c + r * c_stride + v * lanes);
  }
}

template <typename T>
void Multiply(const float* a, int64_t a_stride, int64_t rows, const T* panel, int64_t k, bool add, float* c,
              int64_t c_stride) {
  const int64_t width = kTileVectors * Lanes();
  static_assert(kPanel % (kTileVectors * hn::MaxLanes(F())) == 0);
  for (int64_t j = 0; j < kPanel; j += width) {
    int64_t r = 0;
    for (; r + kTileRows <= rows; r += kTileRows)
      MultiplyTile<kTileRows>(a + r * a_stride, a_stride, panel + j, k, add, c + r * c_stride + j, c_stride);
    const auto rest = [&]<int kRows>() {
      MultiplyTile<kRows>(a + r * a_stride, a_stride, panel + j, k, add, c + r * c_stride + j, c_stride);
    };
    switch (rows - r) {
      case 1:
        rest.template operator()<1>();
        break;
      case 2:
        rest.template operator()<2>();
        break;
      case 3:
        rest.template operator()<3>();
        break;
      case 4:
        rest.template operator()<4>();
        break;
      case 5:
        rest.template operator()<5>();
        break;
    }
  }
}

}  // namespace

void MultiplyFloat(const float* a, int64_t a_stride, int64_t rows, const float* panel, int64_t k, bool add, float* c,
                   int64_t c_stride) {
  Multiply(a, a_stride, rows, panel, k, add, c, c_stride);
}
void MultiplyBf16(const float* a, int64_t a_stride, int64_t rows, const Bf16* panel, int64_t k, bool add, float* c,
                  int64_t c_stride) {
  Multiply(a, a_stride, rows, panel, k, add, c, c_stride);
}

void Transpose(const uint32_t* in, int64_t in_stride, int64_t count, uint32_t* out) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < kPanel; ++j) out[i * kPanel + j] = in[j * in_stride + i];
#else
  const hn::FixedTag<uint32_t, 4> d;
  for (int64_t i = 0; i < count; i += 4) {
    for (int64_t j = 0; j < kPanel; j += 4) {
      const uint32_t* from = in + j * in_stride + i;
      const auto a = hn::LoadU(d, from), b = hn::LoadU(d, from + in_stride);
      const auto e = hn::LoadU(d, from + 2 * in_stride), f = hn::LoadU(d, from + 3 * in_stride);
      const auto ae = hn::InterleaveLower(d, a, e), bf = hn::InterleaveLower(d, b, f);
      const auto ae2 = hn::InterleaveUpper(d, a, e), bf2 = hn::InterleaveUpper(d, b, f);
      uint32_t* to = out + i * kPanel + j;
      hn::StoreU(hn::InterleaveLower(d, ae, bf), d, to);
      if (i + 1 < count) hn::StoreU(hn::InterleaveUpper(d, ae, bf), d, to + kPanel);
      if (i + 2 < count) hn::StoreU(hn::InterleaveLower(d, ae2, bf2), d, to + 2 * kPanel);
      if (i + 3 < count) hn::StoreU(hn::InterleaveUpper(d, ae2, bf2), d, to + 3 * kPanel);
    }
  }
#endif
}

}  // namespace quire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::cpu {

HWY_EXPORT(MultiplyFloat);
HWY_EXPORT(MultiplyBf16);
HWY_EXPORT(Transpose);

void MultiplyPanel(const float* a, int64_t a_stride, int64_t rows, const float* panel, int64_t k, bool add, float* c,
                   int64_t c_stride) {
  HWY_DYNAMIC_DISPATCH(MultiplyFloat)(a, a_stride, rows, panel, k, add, c, c_stride);
}
void MultiplyPanel(const float* a, int64_t a_stride, int64_t rows, const Bf16* panel, int64_t k, bool add, float* c,
                   int64_t c_stride) {
  HWY_DYNAMIC_DISPATCH(MultiplyBf16)(a, a_stride, rows, panel, k, add, c, c_stride);
}
void TransposePanel(const uint32_t* in, int64_t in_stride, int64_t count, uint32_t* out) {
  HWY_DYNAMIC_DISPATCH(Transpose)(in, in_stride, count, out);
}

}  // namespace quire::cpu
#endif
