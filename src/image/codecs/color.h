// From what formats store to RGB.
#pragma once

#include <cstdint>
#include <memory>

#include "image/codecs/codec.h"

namespace quire::codecs {

// a * b / 255, rounded (Pillow's MULDIV255).
inline uint8_t Times(uint8_t a, uint8_t b) {
  const int product = a * b + 128;
  return static_cast<uint8_t>(((product >> 8) + product) >> 8);
}

// A channel value laid on white: the rest of what alpha leaves is 255.
inline uint8_t OnWhite(uint8_t value, uint8_t alpha) {
  const int sum = value * alpha + 255 * (255 - alpha) + 128;
  return static_cast<uint8_t>(((sum >> 8) + sum) >> 8);
}

// RGBA pixels (alpha not multiplied in) laid on white.
void LayOnWhite(const uint8_t* rgba, size_t pixels, uint8_t* rgb);

// Turns CMYK (0: no ink, or 255: no ink when inverted) into RGB.
class CmykToRgb {
 public:
  // profile: an ICC profile of the picture, or empty; a profile that is no CMYK profile is passed over.
  CmykToRgb(Bytes profile, bool inverted);
  ~CmykToRgb();
  void Convert(const uint8_t* cmyk, size_t pixels, uint8_t* rgb) const;

 private:
  void* transform_ = nullptr;  // lcms2's cmsHTRANSFORM
  bool inverted_;
};

}  // namespace quire::codecs
