// The pages of the pictures that were named, one after another; the next one is decoded while a page is read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "image/image.h"

namespace quire::cli {

struct Picture {
  std::string source;  // as named; "-" for standard input
  int page = 1;
  Image image;
  std::string format;  // "jpeg"
  std::vector<std::string> warnings;
  double decode_ms = 0;
};

struct PictureOptions {
  int64_t max_pixels = 200'000'000;
  std::function<bool()> canceled = [] { return false; };  // asked, on any thread, while standard input gives nothing
};

// Calls on_page for each page of each input, in order; on_error for one that cannot be decoded (its picture has no
// pixels), which does not stop the others. Either ends the loop by returning false.
void ForEachPicture(const std::vector<std::string>& inputs, const PictureOptions& options,
                    const std::function<bool(const Picture&)>& on_page,
                    const std::function<bool(const Picture&, const Error&)>& on_error);

}  // namespace quire::cli
