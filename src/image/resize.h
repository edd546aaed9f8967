// Resizing and cutting with the bytes that Pillow gives: what the models were trained and published with.
#pragma once

#include <optional>

#include "image/image.h"

namespace quire {

// Bicubic with a = -0.5, widened when shrinking; equal byte for byte to Pillow's Image.resize(size, BICUBIC, box)
// (libImaging/Resample.c). Sides >= 1. box: the part of the picture to show, inside it; none: all of it. As in Pillow,
// pixels beyond the box's edges still count where the kernel reaches them.
Image Resize(const Image& image, int width_px, int height_px, const std::optional<RectPx>& box = std::nullopt);

// The part of the picture inside rect; where rect leaves the picture the result has the grey level outside. So it also
// pads: a rectangle around a picture lays it on a canvas.
Image Crop(const Image& image, const RectPx& rect, uint8_t outside = 127);

}  // namespace quire
