// What a product does with its sums.
#pragma once

#include "backend/blocks.h"

namespace quire::cuda {

// Abramowitz and Stegun 7.1.26: off by no more than 1.5e-7.
__device__ inline float Erf(float x) {
  const float a = fabsf(x), t = __fdividef(1.0f, fmaf(0.3275911f, a, 1.0f));
  const float poly =
      t * fmaf(t, fmaf(t, fmaf(t, fmaf(t, 1.061405429f, -1.453152027f), 1.421413741f), -0.284496736f), 0.254829592f);
  return copysignf(fmaf(-poly, __expf(-a * a), 1.0f), x);
}

__device__ inline float Activate(float x, Activation activation) {
  switch (activation) {
    case Activation::kNone:
      break;
    case Activation::kGelu:
      return 0.5f * x * (1.0f + Erf(x * 0.70710678118654752f));
    case Activation::kQuickGelu:
      return x / (1.0f + expf(-1.702f * x));
  }
  return x;
}

}  // namespace quire::cuda
