// Pixels as the vision tower takes them.
#pragma once

#include "image/image.h"

namespace quire {

// A view as float32 [height, width, 3], channel last: (x / 255 - 0.5) / 0.5 in float32 arithmetic, the values of
// torchvision's ToTensor and Normalize with mean and deviation 0.5. out_hwc has room for image.rgb.size() floats.
void NormaliseView(const Image& image, float* out_hwc);

}  // namespace quire
