#include "image/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace quire {
namespace {

constexpr int kWeightBits = 22;  // fixed point: 8 bits of pixel and 2 of overshoot remain of 32
constexpr double kSupport = 2;   // pixels that the kernel reaches to each side

double Bicubic(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * kA;
  return 0;
}

// Weights of one axis: output i is the sum of inputs [first[i], first[i] + count[i]) by weights[i * stride + ...].
struct Axis {
  int stride = 0;
  std::vector<int> first, count;
  std::vector<int32_t> weights;

  const int32_t* weights_of(int i) const { return weights.data() + static_cast<size_t>(i) * stride; }
};

// in_size pixels, of which [begin, end) are shown as out_size.
Axis MakeAxis(int in_size, double begin, double end, int out_size) {
  const double scale = (end - begin) / out_size;
  const double widening = std::max(scale, 1.0);
  const double support = kSupport * widening;
  Axis axis;
  axis.stride = static_cast<int>(std::ceil(support)) * 2 + 1;
  axis.first.resize(out_size);
  axis.count.resize(out_size);
  axis.weights.resize(static_cast<size_t>(out_size) * axis.stride);
  std::vector<double> exact(axis.stride);
  for (int i = 0; i < out_size; ++i) {
    const double centre = begin + (i + 0.5) * scale;
    const int first = std::max(0, static_cast<int>(centre - support + 0.5));
    const int count = std::min(in_size, static_cast<int>(centre + support + 0.5)) - first;
    double sum = 0;
    for (int j = 0; j < count; ++j) {
      exact[j] = Bicubic((j + first - centre + 0.5) * (1.0 / widening));
      sum += exact[j];
    }
    axis.first[i] = first;
    axis.count[i] = count;
    for (int j = 0; j < count; ++j) {
      const double weight = sum != 0 ? exact[j] / sum : exact[j];
      axis.weights[static_cast<size_t>(i) * axis.stride + j] =
          static_cast<int32_t>((weight < 0 ? -0.5 : 0.5) + weight * (1 << kWeightBits));
    }
  }
  return axis;
}

uint8_t ToByte(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}
constexpr int32_t kHalf = 1 << (kWeightBits - 1);

// Rows [first_row, first_row + rows) of the picture, as wide as the axis.
Image ResizeRows(const Image& image, const Axis& axis, int first_row, int rows) {
  Image out(static_cast<int>(axis.first.size()), rows);
  for (int y = 0; y < rows; ++y) {
    const uint8_t* in_row = image.row(first_row + y);
    uint8_t* out_pixel = out.row(y);
    for (int x = 0; x < out.width_px; ++x, out_pixel += 3) {
      const uint8_t* pixel = in_row + static_cast<size_t>(axis.first[x]) * 3;
      const int32_t* weight = axis.weights_of(x);
      int32_t red = kHalf;
      int32_t green = kHalf;
      int32_t blue = kHalf;
      for (int j = 0; j < axis.count[x]; ++j, pixel += 3) {
        red += pixel[0] * weight[j];
        green += pixel[1] * weight[j];
        blue += pixel[2] * weight[j];
      }
      out_pixel[0] = ToByte(red);
      out_pixel[1] = ToByte(green);
      out_pixel[2] = ToByte(blue);
    }
  }
  return out;
}

// image holds the rows of the whole picture from first_row on.
Image ResizeColumns(const Image& image, const Axis& axis, int first_row) {
  Image out(image.width_px, static_cast<int>(axis.first.size()));
  std::vector<int32_t> sums(image.row_bytes());
  for (int y = 0; y < out.height_px; ++y) {
    std::fill(sums.begin(), sums.end(), kHalf);
    for (int j = 0; j < axis.count[y]; ++j) {
      const uint8_t* in_row = image.row(axis.first[y] - first_row + j);
      const int32_t weight = axis.weights_of(y)[j];
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += in_row[i] * weight;
    }
    std::transform(sums.begin(), sums.end(), out.row(y), ToByte);
  }
  return out;
}

}  // namespace

Image Resize(const Image& image, int width_px, int height_px, const std::optional<RectPx>& box) {
  QUIRE_CHECK_GE(std::min(width_px, height_px), 1);
  const RectPx all{0, 0, image.width_px, image.height_px};
  const RectPx from = box.value_or(all);
  QUIRE_CHECK(from.left_px >= 0 && from.width_px >= 1 && from.left_px + from.width_px <= image.width_px);
  QUIRE_CHECK(from.top_px >= 0 && from.height_px >= 1 && from.top_px + from.height_px <= image.height_px);

  const bool rows_change = width_px != image.width_px || from.width_px != image.width_px;
  const bool columns_change = height_px != image.height_px || from.height_px != image.height_px;
  if (!rows_change && !columns_change) return image;
  const Axis vertical = MakeAxis(image.height_px, from.top_px, from.top_px + from.height_px, height_px);
  if (!rows_change) return ResizeColumns(image, vertical, 0);
  const Axis horizontal = MakeAxis(image.width_px, from.left_px, from.left_px + from.width_px, width_px);
  if (!columns_change) return ResizeRows(image, horizontal, 0, image.height_px);
  const int first_row = vertical.first.front();
  const int rows = vertical.first.back() + vertical.count.back() - first_row;
  return ResizeColumns(ResizeRows(image, horizontal, first_row, rows), vertical, first_row);
}

Image Crop(const Image& image, const RectPx& rect, uint8_t outside) {
  Image out(rect.width_px, rect.height_px, outside);
  const int left = std::max(rect.left_px, 0);
  const int right = std::min(rect.left_px + rect.width_px, image.width_px);
  const int top = std::max(rect.top_px, 0);
  const int bottom = std::min(rect.top_px + rect.height_px, image.height_px);
  for (int y = top; y < bottom && left < right; ++y)
    std::memcpy(out.row(y - rect.top_px) + (left - rect.left_px) * 3, image.row(y) + left * 3, (right - left) * 3);
  return out;
}

}  // namespace quire
