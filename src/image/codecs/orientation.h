// The eight orientations of EXIF.
#pragma once

#include "image/codecs/codec.h"

namespace quire::codecs {

// Tag 0x0112 of the first directory of an EXIF block (a TIFF header and its directories, with or without "Exif\0\0" in
// front); 1 when there is none or the block is damaged.
int ExifOrientation(Bytes exif);

// True when the upright picture is as wide as the stored one is high.
constexpr bool SwapsSides(int orientation) {
  return orientation >= 5;
}

// Turns and mirrors a stored picture; other values than 2 to 8 leave it.
Image TurnUpright(Image stored, int orientation);

}  // namespace quire::codecs
