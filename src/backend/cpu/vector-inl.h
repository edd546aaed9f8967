// What the kernel files share, once for each instruction set.
#include <cstring>

#include "hwy/contrib/math/math-inl.h"
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

// The first n < Lanes() elements, then `fill`. By a buffer: reading past the end could fault.
template <typename T>
HWY_INLINE V LoadFirst(const T* p, int64_t n, float fill = 0) {
  HWY_ALIGN float buffer[16];
  for (int64_t i = 0; i < Lanes(); ++i) buffer[i] = i < n ? ToFloat(p[i]) : fill;
  return hn::Load(kF, buffer);
}
HWY_INLINE void StoreFirst(V v, int64_t n, float* p) {
  HWY_ALIGN float buffer[16];
  hn::Store(v, kF, buffer);
  std::memcpy(p, buffer, static_cast<size_t>(n) * sizeof(float));
}
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
// Within 1 to 2 units in the last place; 0 below e^-104, and arguments above 88 count as 88 (the float range ends there).
HWY_INLINE V Exp(V x) {
  return hn::Exp(kF, hn::Min(x, hn::Set(kF, 88.0f)));
}

}  // namespace quire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
