#include "image/codecs/orientation.h"

#include <cstddef>

#include "image/codecs/byte_reader.h"

namespace quire::codecs {

int ExifOrientation(Bytes exif) {
  constexpr uint16_t kOrientationTag = 0x0112;
  constexpr uint16_t kLong = 4;  // else taken as a short
  if (StartsWith(exif, std::string_view("Exif\0\0", 6))) exif = exif.subspan(6);
  const bool little = StartsWith(exif, "II");
  if (!little && !StartsWith(exif, "MM")) return 1;
  const ByteReader reader(exif, little);
  const size_t directory = reader.U32(4);
  const size_t entries = reader.U16(directory);
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + i * 12;
    if (reader.U16(entry) != kOrientationTag) continue;
    const uint32_t value = reader.U16(entry + 2) == kLong ? reader.U32(entry + 8) : reader.U16(entry + 8);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Image TurnUpright(Image stored, int orientation) {
  if (orientation < 2 || orientation > 8) return stored;
  const bool swap = SwapsSides(orientation);
  // Steps through the stored picture for a step right and a step down in the upright one, and where to begin.
  const ptrdiff_t column = 3;
  const ptrdiff_t row = static_cast<ptrdiff_t>(stored.row_bytes());
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const ptrdiff_t across = from_right ? -column : column;
  const ptrdiff_t along = from_bottom ? -row : row;
  const uint8_t* line = stored.rgb.data() + (from_right ? row - column : 0) +
                        (from_bottom ? row * (stored.height_px - ptrdiff_t{1}) : ptrdiff_t{0});
  const ptrdiff_t right = swap ? along : across;
  const ptrdiff_t down = swap ? across : along;

  Image upright(swap ? stored.height_px : stored.width_px, swap ? stored.width_px : stored.height_px);
  uint8_t* out = upright.rgb.data();
  for (int y = 0; y < upright.height_px; ++y, line += down) {
    const uint8_t* pixel = line;
    for (int x = 0; x < upright.width_px; ++x, pixel += right, out += 3) {
      out[0] = pixel[0];
      out[1] = pixel[1];
      out[2] = pixel[2];
    }
  }
  return upright;
}

}  // namespace quire::codecs
