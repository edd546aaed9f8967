// Norms, activations, softmax and other work on single rows.
#include <cmath>
#include <limits>

#include "backend/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/row_kernels.cc"
#include "hwy/foreach_target.h"
//
#include "backend/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::cpu::HWY_NAMESPACE {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// out[i] = f(i) for the vectors that begin at i.
template <typename Function>
HWY_INLINE void Fill(int64_t n, float* out, Function f) {
  for (int64_t i = 0; i < n; i += Lanes()) StoreAt(f(i), i, n, out);
}

// erf(x) = x P(x^2) / Q(x^2) for |x| <= 4, where it reaches 1 within float32. Coefficients: own weighted least-squares
// fit, relative error 2.5e-8 before rounding; 4.5e-7 in float32 arithmetic.
HWY_INLINE V Erf(V x) {
  const V bound = hn::Set(kF, 4.0f), one = hn::Set(kF, 1.0f);
  const V z = hn::Max(hn::Min(x, bound), hn::Neg(bound)), s = hn::Mul(z, z);
  constexpr float kP[] = {1.986954231e-06f, 2.845448512e-04f, 3.882379436e-03f,
                          5.309872931e-02f, 1.935224495e-01f, 1.128379140e+00f};
  constexpr float kQ[] = {3.742088073e-05f, 1.185339504e-03f, 1.520530361e-02f,
                          1.153406319e-01f, 5.048373654e-01f, 1.0f};
  V p = hn::Set(kF, kP[0]), q = hn::Set(kF, kQ[0]);
#pragma GCC unroll 5
  for (int i = 1; i < 6; ++i) {
    p = hn::MulAdd(p, s, hn::Set(kF, kP[i]));
    q = hn::MulAdd(q, s, hn::Set(kF, kQ[i]));
  }
  return hn::Max(hn::Min(hn::Div(hn::Mul(z, p), q), one), hn::Neg(one));
}

// x / (1 + e^-(a x))
HWY_INLINE V SigmoidMul(V x, float a) {
  return hn::Div(x, hn::Add(hn::Set(kF, 1.0f), Exp(hn::Mul(x, hn::Set(kF, -a)))));
}

HWY_INLINE V Activate(V x, Activation act) {
  switch (act) {
    case Activation::kNone:
      return x;
    case Activation::kGelu: {
      const V e = Erf(hn::Mul(x, hn::Set(kF, 0.70710678118654752f)));
      return hn::Mul(hn::Mul(x, hn::Set(kF, 0.5f)), hn::Add(e, hn::Set(kF, 1.0f)));
    }
    case Activation::kQuickGelu:
      return SigmoidMul(x, 1.702f);
  }
  return x;
}

template <typename T>
void WidenAll(const T* in, int64_t n, float* out) {
  Fill(n, out, [&](int64_t i) HWY_ATTR { return LoadAt(in, i, n); });
}

}  // namespace

void Widen(const void* in, DType type, int64_t n, float* out) {
  switch (type) {
    case DType::kBf16:
      return WidenAll(static_cast<const Bf16*>(in), n, out);
    case DType::kF16:
      return WidenAll(static_cast<const F16*>(in), n, out);
    default:
      return WidenAll(static_cast<const float*>(in), n, out);
  }
}

// Nearest, ties to even, as ToBf16.
void Round(const float* in, int64_t n, Bf16* out) {
  const hn::RebindToUnsigned<F> whole;
  const hn::Rebind<uint16_t, F> half;
  int64_t i = 0;
  for (; i + Lanes() <= n; i += Lanes()) {
    const V x = Load(in + i);
    const auto bits = hn::BitCast(whole, x);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(whole, 1u));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(whole, 0x7FFFu)));
    const auto quiet = hn::Or(bits, hn::Set(whole, 0x400000u));
    const auto nan = hn::RebindMask(whole, hn::IsNaN(x));
    const auto high = hn::ShiftRight<16>(hn::IfThenElse(nan, quiet, rounded));
    hn::StoreU(hn::TruncateTo(half, high), half, reinterpret_cast<uint16_t*>(out + i));
  }
  for (; i < n; ++i) out[i] = ToBf16(in[i]);
}

void LayerNorm(const float* x, const float* weight, const float* bias, int64_t n, float eps, float* out) {
  V sums = hn::Zero(kF);
  for (int64_t i = 0; i < n; i += Lanes()) sums = hn::Add(sums, LoadAt(x, i, n));
  const float middle = Sum(sums) / static_cast<float>(n);
  const V mean = hn::Set(kF, middle);
  V squares = hn::Zero(kF);
  for (int64_t i = 0; i < n; i += Lanes()) {
    const V centred = hn::Sub(LoadAt(x, i, n, middle), mean);
    squares = hn::MulAdd(centred, centred, squares);
  }
  const V scale = hn::Set(kF, 1.0f / std::sqrt(Sum(squares) / static_cast<float>(n) + eps));
  Fill(n, out, [&](int64_t i) HWY_ATTR {
    const V normal = hn::Mul(hn::Sub(LoadAt(x, i, n), mean), scale);
    return hn::MulAdd(normal, LoadAt(weight, i, n), LoadAt(bias, i, n));
  });
}

void RmsNorm(const float* x, const float* weight, int64_t n, float eps, float* out) {
  V squares = hn::Zero(kF);
  for (int64_t i = 0; i < n; i += Lanes()) {
    const V v = LoadAt(x, i, n);
    squares = hn::MulAdd(v, v, squares);
  }
  const V scale = hn::Set(kF, 1.0f / std::sqrt(Sum(squares) / static_cast<float>(n) + eps));
  Fill(n, out, [&](int64_t i) HWY_ATTR { return hn::Mul(hn::Mul(LoadAt(x, i, n), scale), LoadAt(weight, i, n)); });
}

void Rotate(const float* cosines, const float* sines, int64_t half, float* v) {
  for (int64_t i = 0; i < half; i += Lanes()) {
    const V a = LoadAt(v, i, half), b = LoadAt(v + half, i, half);
    const V cosine = LoadAt(cosines, i, half), sine = LoadAt(sines, i, half);
    StoreAt(hn::NegMulAdd(b, sine, hn::Mul(a, cosine)), i, half, v);
    StoreAt(hn::MulAdd(a, sine, hn::Mul(b, cosine)), i, half, v + half);
  }
}

void SiluMul(const float* gate, const float* up, int64_t n, float* out) {
  Fill(n, out, [&](int64_t i) HWY_ATTR { return hn::Mul(SigmoidMul(LoadAt(gate, i, n), 1.0f), LoadAt(up, i, n)); });
}

void Add(const float* y, int64_t n, float* x) {
  Fill(n, x, [&](int64_t i) HWY_ATTR { return hn::Add(LoadAt(x, i, n), LoadAt(y, i, n)); });
}

void Combine(const float* y, const float* weights, int64_t count, const float* shared, int64_t n, float* x) {
  Fill(n, x, [&](int64_t i) HWY_ATTR {
    V sum = hn::Zero(kF);
    for (int64_t s = 0; s < count; ++s) sum = hn::MulAdd(hn::Set(kF, weights[s]), LoadAt(y + s * n, i, n), sum);
    if (shared) sum = hn::Add(sum, LoadAt(shared, i, n));
    return hn::Add(LoadAt(x, i, n), sum);
  });
}

void Finish(const float* c, const float* bias, Activation act, const float* residual, int64_t n, float* out) {
  Fill(n, out, [&](int64_t i) HWY_ATTR {
    V v = LoadAt(c, i, n);
    if (bias) v = hn::Add(v, LoadAt(bias, i, n));
    v = Activate(v, act);
    return residual ? hn::Add(LoadAt(residual, i, n), v) : v;
  });
}

float ScaledMax(float scale, int64_t n, float* s) {
  V largest = hn::Set(kF, kLowest);
  const V factor = hn::Set(kF, scale);
  for (int64_t i = 0; i < n; i += Lanes()) {
    const V v = hn::Mul(LoadAt(s, i, n, kLowest), factor);
    StoreAt(v, i, n, s);
    largest = hn::Max(largest, v);
  }
  return Max(largest);
}

float ScaledMaxGrid(float scale, const float* by_row, const float* by_column, int64_t rows, int64_t columns, float* s) {
  V largest = hn::Set(kF, kLowest);
  const V factor = hn::Set(kF, scale);
  for (int64_t y = 0; y < rows; ++y) {
    float* line = s + y * columns;
    const V row = hn::Set(kF, by_row[y]);
    for (int64_t x = 0; x < columns; x += Lanes()) {
      const V v = hn::MulAdd(LoadAt(line, x, columns), factor, hn::Add(row, LoadAt(by_column, x, columns, kLowest)));
      StoreAt(v, x, columns, line);
      largest = hn::Max(largest, v);
    }
  }
  return Max(largest);
}

float ExpAndSum(float largest, int64_t n, float* s) {
  V sum = hn::Zero(kF);
  const V top = hn::Set(kF, largest);
  for (int64_t i = 0; i < n; i += Lanes()) {
    const V p = Exp(hn::Sub(LoadAt(s, i, n, kLowest), top));
    StoreAt(p, i, n, s);
    sum = hn::Add(sum, p);
  }
  return Sum(sum);
}

void Merge(float keep, const float* block, float add, int64_t n, float* mix) {
  const V a = hn::Set(kF, keep), b = hn::Set(kF, add);
  Fill(n, mix, [&](int64_t i) HWY_ATTR { return hn::MulAdd(LoadAt(mix, i, n), a, hn::Mul(LoadAt(block, i, n), b)); });
}

void Scale(const float* x, float scale, int64_t n, float* out) {
  Fill(n, out, [&](int64_t i) HWY_ATTR { return hn::Mul(LoadAt(x, i, n), hn::Set(kF, scale)); });
}

}  // namespace quire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::cpu {

HWY_EXPORT(Widen);
HWY_EXPORT(Round);
HWY_EXPORT(LayerNorm);
HWY_EXPORT(RmsNorm);
HWY_EXPORT(Rotate);
HWY_EXPORT(SiluMul);
HWY_EXPORT(Add);
HWY_EXPORT(Combine);
HWY_EXPORT(Finish);
HWY_EXPORT(ScaledMax);
HWY_EXPORT(ScaledMaxGrid);
HWY_EXPORT(ExpAndSum);
HWY_EXPORT(Merge);
HWY_EXPORT(Scale);

void WidenRow(const void* in, DType type, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(Widen)(in, type, n, out);
}
void RoundRow(const float* in, int64_t n, Bf16* out) {
  HWY_DYNAMIC_DISPATCH(Round)(in, n, out);
}
void LayerNormRow(const float* x, const float* weight, const float* bias, int64_t n, float eps, float* out) {
  HWY_DYNAMIC_DISPATCH(LayerNorm)(x, weight, bias, n, eps, out);
}
void RmsNormRow(const float* x, const float* weight, int64_t n, float eps, float* out) {
  HWY_DYNAMIC_DISPATCH(RmsNorm)(x, weight, n, eps, out);
}
void RotateRow(const float* cosines, const float* sines, int64_t half, float* v) {
  HWY_DYNAMIC_DISPATCH(Rotate)(cosines, sines, half, v);
}
void SiluMulRow(const float* gate, const float* up, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(SiluMul)(gate, up, n, out);
}
void AddRow(const float* y, int64_t n, float* x) {
  HWY_DYNAMIC_DISPATCH(Add)(y, n, x);
}
void CombineRow(const float* y, const float* weights, int64_t count, const float* shared, int64_t n, float* x) {
  HWY_DYNAMIC_DISPATCH(Combine)(y, weights, count, shared, n, x);
}
void FinishRow(const float* c, const float* bias, Activation act, const float* residual, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(Finish)(c, bias, act, residual, n, out);
}
float ScaleMax(float scale, int64_t n, float* s) {
  return HWY_DYNAMIC_DISPATCH(ScaledMax)(scale, n, s);
}
float ScaleMaxGrid(float scale, const float* by_row, const float* by_column, int64_t rows, int64_t columns, float* s) {
  return HWY_DYNAMIC_DISPATCH(ScaledMaxGrid)(scale, by_row, by_column, rows, columns, s);
}
float ExpSum(float largest, int64_t n, float* s) {
  return HWY_DYNAMIC_DISPATCH(ExpAndSum)(largest, n, s);
}
void MergeRow(float keep, const float* block, float add, int64_t n, float* mix) {
  HWY_DYNAMIC_DISPATCH(Merge)(keep, block, add, n, mix);
}
void ScaleRow(const float* x, float scale, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(Scale)(x, scale, n, out);
}

}  // namespace quire::cpu
#endif
