#include "backend/normalise.h"

#include <array>

namespace quire {

void NormalisePixels(const uint8_t* pixels, size_t count, float* out) {
  std::array<float, 256> values;
  for (int x = 0; x < 256; ++x) values[x] = (static_cast<float>(x) / 255.0f - 0.5f) / 0.5f;
  for (size_t i = 0; i < count; ++i) out[i] = values[pixels[i]];
}

}  // namespace quire
