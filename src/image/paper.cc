#include "image/paper.h"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace quire {
namespace {

constexpr double kBlankShare = 0.0002;
constexpr int kPaperRange = 16;  // levels over which noise and shading spread paper

// Sorts three pixels of every place: afterwards a holds the least, c the greatest.
void Sort3(uint8_t* a, uint8_t* b, uint8_t* c, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const uint8_t low = std::min(a[i], b[i]);
    const uint8_t high = std::max(a[i], b[i]);
    const uint8_t middle = std::min(high, c[i]);
    c[i] = std::max(high, c[i]);
    a[i] = std::min(low, middle);
    b[i] = std::max(low, middle);
  }
}

// Median of the 3x3 neighbourhood for all pixels that have one: [height - 2, width - 2]. The median of nine is the
// median of (greatest of the columns' least, median of their medians, least of their greatest).
std::vector<uint8_t> Median3x3(const std::vector<uint8_t>& grey, size_t width, size_t height) {
  std::vector<uint8_t> out;
  out.reserve((width - 2) * (height - 2));
  std::vector<uint8_t> low(width), middle(width), high(width);
  for (size_t y = 0; y + 2 < height; ++y) {
    const uint8_t* row = grey.data() + y * width;
    std::copy_n(row, width, low.begin());
    std::copy_n(row + width, width, middle.begin());
    std::copy_n(row + 2 * width, width, high.begin());
    Sort3(low.data(), middle.data(), high.data(), width);
    const auto median = [](uint8_t a, uint8_t b, uint8_t c) {
      return std::max(std::min(a, b), std::min(std::max(a, b), c));
    };
    for (size_t x = 0; x + 2 < width; ++x) {
      out.push_back(median(std::max({low[x], low[x + 1], low[x + 2]}), median(middle[x], middle[x + 1], middle[x + 2]),
                           std::min({high[x], high[x + 1], high[x + 2]})));
    }
  }
  return out;
}

}  // namespace

std::vector<uint8_t> ToGrey(const Image& image) {
  std::vector<uint8_t> grey(image.rgb.size() / 3);
  for (size_t i = 0; i < grey.size(); ++i) {
    const uint8_t* pixel = image.rgb.data() + i * 3;
    grey[i] = static_cast<uint8_t>((pixel[0] * 19595 + pixel[1] * 38470 + pixel[2] * 7471 + 0x8000) >> 16);
  }
  return grey;
}

int PaperLevel(const std::vector<uint8_t>& grey) {
  std::array<int64_t, 256> counts{};
  for (uint8_t level : grey) ++counts[level];
  int64_t best_count = -1;
  int64_t best_sum = 0;
  for (int first = 0; first + kPaperRange <= 256; ++first) {
    int64_t count = 0;
    int64_t sum = 0;
    for (int level = first; level < first + kPaperRange; ++level) {
      count += counts[level];
      sum += counts[level] * level;
    }
    if (count < best_count) continue;
    best_count = count;
    best_sum = sum;
  }
  return best_count > 0 ? static_cast<int>(best_sum / best_count) : 255;
}

std::vector<uint8_t> ContrastToPaper(const Image& image) {
  std::vector<uint8_t> levels = ToGrey(image);
  const int paper = PaperLevel(levels);
  for (uint8_t& level : levels) level = static_cast<uint8_t>(std::abs(level - paper));
  return levels;
}

bool IsBlank(const Image& image) {
  std::vector<uint8_t> grey = ToGrey(image);
  if (image.width_px >= 3 && image.height_px >= 3) grey = Median3x3(grey, image.width_px, image.height_px);
  const int paper = PaperLevel(grey);
  const auto ink =
      std::count_if(grey.begin(), grey.end(), [&](uint8_t level) { return std::abs(level - paper) > kInkContrast; });
  return static_cast<double>(ink) < kBlankShare * static_cast<double>(grey.size());
}

}  // namespace quire
