// What a product does with its sums.
#pragma once

#include "backend/blocks.h"

namespace quire::cuda {

__device__ inline float Activate(float x, Activation activation) {
  switch (activation) {
    case Activation::kNone:
      break;
    case Activation::kGelu:
      return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
    case Activation::kQuickGelu:
      return x / (1.0f + expf(-1.702f * x));
  }
  return x;
}

}  // namespace quire::cuda
