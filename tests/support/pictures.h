// Pictures for tests, by libpng alone.
#pragma once

#include <png.h>

#include <stdexcept>
#include <string>

#include "image/image.h"

namespace quire {

inline Image ReadPng(const std::string& path) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  if (!png_image_begin_read_from_file(&png, path.c_str())) throw std::runtime_error(path + ": " + png.message);
  png.format = PNG_FORMAT_RGB;
  Image image(static_cast<int>(png.width), static_cast<int>(png.height));
  if (!png_image_finish_read(&png, nullptr, image.rgb.data(), 0, nullptr)) throw std::runtime_error(png.message);
  return image;
}

}  // namespace quire
