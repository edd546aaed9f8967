#include "image/normalise.h"

#include <array>

namespace quire {

void NormaliseView(const Image& image, float* out_hwc) {
  std::array<float, 256> values;
  for (int x = 0; x < 256; ++x) values[x] = (static_cast<float>(x) / 255.0f - 0.5f) / 0.5f;
  for (size_t i = 0; i < image.rgb.size(); ++i) out_hwc[i] = values[image.rgb[i]];
}

}  // namespace quire
