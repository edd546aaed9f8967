// What the header of an encoded picture says.
#pragma once

#include <string>

namespace quire {

struct PictureInfo {
  std::string format;   // "jpeg"
  int pages = 1;        // of the file; only TIFF has several
  int width_px = 0;     // upright
  int height_px = 0;    // upright
  int orientation = 1;  // as stored, EXIF's 1 to 8; 1 also where the codec turns the picture itself (HEIF)
};

}  // namespace quire
