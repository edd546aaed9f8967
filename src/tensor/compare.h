// How far two float tensors are apart.
#pragma once

#include <span>
#include <string>

namespace quire {

struct Difference {
  double relative_l2 = 0;  // |found - wanted| / |wanted|; infinite when a value is not finite
  double max_abs = 0;
  size_t worst = 0;  // index of max_abs
  std::string ToString() const;
};

// Both of the same size.
Difference Compare(std::span<const float> found, std::span<const float> wanted);

}  // namespace quire
