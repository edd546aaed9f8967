// What the kernel files share, once for each instruction set.
#include <cstring>

#include "hwy/highway.h"

#if defined(QUIRE_CPU_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_CPU_VECTOR_INL_H_
#undef QUIRE_CPU_VECTOR_INL_H_
#else
#define QUIRE_CPU_VECTOR_INL_H_
#endif

#include "tensor/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace quire::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes, so that a vector never passes a panel's width.
using F = hn::CappedTag<float, 16>;
using V = hn::Vec<F>;
inline const F kF;
HWY_INLINE int64_t Lanes() {
  return static_cast<int64_t>(hn::Lanes(kF));
}

HWY_INLINE V Load(const float* p) {
  return hn::LoadU(kF, p);
}
HWY_INLINE V Load(const Bf16* p) {
  const hn::Rebind<uint16_t, F> half;
  const hn::RebindToUnsigned<F> whole;
  const auto bits = hn::LoadU(half, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(kF, hn::ShiftLeft<16>(hn::PromoteTo(whole, bits)));
}
HWY_INLINE V Load(const F16* p) {
  const hn::Rebind<hwy::float16_t, F> half;
  return hn::PromoteTo(kF, hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(p)));
}
HWY_INLINE void Store(V v, float* p) {
  hn::StoreU(v, kF, p);
}

// The first n < Lanes() elements, then `fill`; nothing behind them is touched.
#if HWY_MEM_OPS_MIGHT_FAULT
template <typename T>
HWY_NOINLINE V LoadFirst(const T* p, int64_t n, float fill = 0) {
  HWY_ALIGN float buffer[16];
  for (int64_t i = 0; i < Lanes(); ++i) buffer[i] = i < n ? ToFloat(p[i]) : fill;
  return hn::Load(kF, buffer);
}
inline HWY_NOINLINE void StoreFirst(V v, int64_t n, float* p) {
  HWY_ALIGN float buffer[16];
  hn::Store(v, kF, buffer);
  std::memcpy(p, buffer, static_cast<size_t>(n) * sizeof(float));
}
#else
HWY_INLINE V LoadFirst(const float* p, int64_t n, float fill = 0) {
  const auto mask = hn::FirstN(kF, static_cast<size_t>(n));
  return hn::IfThenElse(mask, hn::MaskedLoad(mask, kF, p), hn::Set(kF, fill));
}
template <typename T>
HWY_INLINE V LoadFirst(const T* p, int64_t n, float fill = 0) {
  float wide[16] = {};
  for (int64_t i = 0; i < n; ++i) wide[i] = ToFloat(p[i]);
  return LoadFirst(wide, n, fill);
}
HWY_INLINE void StoreFirst(V v, int64_t n, float* p) {
  hn::BlendedStore(v, hn::FirstN(kF, static_cast<size_t>(n)), kF, p);
}
#endif
// Elements [i, n) as far as a vector reaches.
template <typename T>
HWY_INLINE V LoadAt(const T* p, int64_t i, int64_t n, float fill = 0) {
  return n - i >= Lanes() ? Load(p + i) : LoadFirst(p + i, n - i, fill);
}
HWY_INLINE void StoreAt(V v, int64_t i, int64_t n, float* p) {
  n - i >= Lanes() ? Store(v, p + i) : StoreFirst(v, n - i, p + i);
}

HWY_INLINE float Sum(V v) {
  return hn::GetLane(hn::SumOfLanes(kF, v));
}
HWY_INLINE float Max(V v) {
  return hn::GetLane(hn::MaxOfLanes(kF, v));
}
// e^x within 2 units in the last place (tested); 0 below -87.3, where results would be denormal, and e^88 above 88,
// where float32 ends. e^x = 2^n e^r with n = round(x / ln 2): r by Cody and Waite's split of ln 2, whose first part
// times n is exact; e^r = 1 + r + r^2 q(r), q by own weighted least squares on |r| <= 0.3475, error 3.2e-9 before
// rounding.
HWY_INLINE V Exp(V x) {
  const hn::RebindToSigned<F> integers;
  const V capped = hn::Min(hn::Set(kF, 88.0f), x);  // in this order a NaN stays one
  const V magic = hn::Set(kF, 12582912.0f);         // 1.5 2^23: the sum's low bits are the rounded integer
  const V shifted = hn::MulAdd(capped, hn::Set(kF, 1.44269504f), magic);
  const V n = hn::Sub(shifted, magic);
  V r = hn::NegMulAdd(n, hn::Set(kF, 0.693145751953125f), capped);
  r = hn::NegMulAdd(n, hn::Set(kF, 1.428606820e-6f), r);
  V q = hn::MulAdd(hn::Set(kF, 1.395080850e-03f), r, hn::Set(kF, 8.369072984e-03f));
  q = hn::MulAdd(q, r, hn::Set(kF, 4.166620104e-02f));
  q = hn::MulAdd(q, r, hn::Set(kF, 1.666651731e-01f));
  q = hn::MulAdd(q, r, hn::Set(kF, 5.000000097e-01f));
  const V power = hn::Add(hn::MulAdd(hn::Mul(r, r), q, r), hn::Set(kF, 1.0f));
  const auto scaled = hn::Add(hn::BitCast(integers, power), hn::ShiftLeft<23>(hn::BitCast(integers, shifted)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(kF, -87.3f)), hn::BitCast(kF, scaled));
}

}  // namespace quire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
