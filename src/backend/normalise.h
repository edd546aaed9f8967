// Pixels as the vision tower takes them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire {

// Bytes of a view as float32: (x / 255 - 0.5) / 0.5 in float32 arithmetic, the values of torchvision's ToTensor and
// Normalize with mean and deviation 0.5. out has room for `count` floats.
void NormalisePixels(const uint8_t* pixels, size_t count, float* out);

}  // namespace quire
