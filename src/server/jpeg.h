// Writing pictures as JPEG.
#pragma once

#include <cstdint>
#include <vector>

#include "image/image.h"

namespace quire {

// quality: 1 to 100. The picture must have pixels, and sides of at most 65,500.
std::vector<uint8_t> EncodeJpeg(const Image& image, int quality = 90);

}  // namespace quire
