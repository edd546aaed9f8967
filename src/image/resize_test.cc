#include "image/resize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

namespace quire {
namespace {

// The patterns of tools/make_pillow_references.py.
Image Picture(const std::string& pattern, int width_px, int height_px) {
  Image image(width_px, height_px);
  for (uint32_t i = 0; i < image.rgb.size(); ++i) {
    uint32_t hash = i * 0x9E3779B1u;
    hash = (hash ^ hash >> 15) * 0x85EBCA77u;
    uint32_t value = (hash ^ hash >> 13) >> 24;
    if (pattern == "ink") value = value < 40 ? 0 : 255;
    if (pattern == "ramp") value = (i / 3 * 7 + i) >> 4;
    image.rgb[i] = static_cast<uint8_t>(value);
  }
  return image;
}

std::string Fnv1a(const std::vector<uint8_t>& bytes) {
  uint64_t hash = 0xCBF29CE484222325;
  for (uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001B3;
  char text[17];
  snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

std::string Hex(const std::vector<uint8_t>& bytes) {
  std::string text;
  for (uint8_t byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

TEST(Resize, EqualsPillow) {
  std::ifstream file(QUIRE_SOURCE_DIR "/tests/data/image/resize.txt");
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    std::istringstream words(line);
    std::string pattern, left, top, right, bottom, hash, hex;
    int width_px, height_px, new_width_px, new_height_px;
    words >> pattern >> width_px >> height_px >> left >> top >> right >> bottom >> new_width_px >> new_height_px >>
        hash >> hex;
    ASSERT_TRUE(words) << line;
    std::optional<RectPx> box;
    if (left != "-") {
      box = RectPx{stoi(left), stoi(top), stoi(right) - stoi(left), stoi(bottom) - stoi(top)};
    }
    const Image out = Resize(Picture(pattern, width_px, height_px), new_width_px, new_height_px, box);
    ASSERT_EQ(out.width_px, new_width_px);
    ASSERT_EQ(out.height_px, new_height_px);
    EXPECT_EQ(Fnv1a(out.rgb), hash) << line;
    if (hex != "-") EXPECT_EQ(Hex(out.rgb), hex) << line;
  }
  EXPECT_GT(cases, 100);
}

TEST(Resize, TheSameSizeIsACopy) {
  const Image image = Picture("noise", 13, 9);
  EXPECT_EQ(Resize(image, 13, 9).rgb, image.rgb);
}

TEST(Crop, CutsAndPads) {
  const Image image = Picture("ramp", 3, 2);
  const Image cut = Crop(image, {1, 0, 2, 1});
  EXPECT_EQ(cut.rgb, std::vector<uint8_t>(image.rgb.begin() + 3, image.rgb.begin() + 9));
  const Image padded = Crop(image, {-1, -2, 5, 5}, 9);
  EXPECT_EQ(Crop(padded, {1, 2, 3, 2}).rgb, image.rgb);
  EXPECT_EQ(std::count(padded.rgb.begin(), padded.rgb.end(), 9) + 18,
            75 + std::count(image.rgb.begin(), image.rgb.end(), 9));
  EXPECT_EQ(Crop(image, {10, 10, 1, 1}).rgb, std::vector<uint8_t>(3, 127));
}

}  // namespace
}  // namespace quire
