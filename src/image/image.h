// A picture in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire {

// 8-bit RGB as a viewer shows it: upright, without alpha. Rows from the top, no gaps: [height_px, width_px, 3].
struct Image {
  Image() = default;
  Image(int width, int height, uint8_t value = 0)
      : width_px(width), height_px(height), rgb(static_cast<size_t>(width) * height * 3, value) {}

  size_t row_bytes() const { return static_cast<size_t>(width_px) * 3; }
  uint8_t* row(int y) { return rgb.data() + y * row_bytes(); }
  const uint8_t* row(int y) const { return rgb.data() + y * row_bytes(); }

  int width_px = 0;
  int height_px = 0;
  std::vector<uint8_t> rgb;
};

struct RectPx {
  int left_px = 0;
  int top_px = 0;
  int width_px = 0;
  int height_px = 0;
  bool operator==(const RectPx&) const = default;
};

}  // namespace quire
