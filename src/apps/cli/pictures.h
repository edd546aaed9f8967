// The pages of the pictures that were named, decoded one at a time in the decode process.
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
};

class Pictures {
 public:
  explicit Pictures(const PictureOptions& options) : options_(options) {}

  // Calls on_page for each page of each input, in order; on_error for one that cannot be read, which does not stop the
  // others. Either ends the loop by returning false.
  void ForEach(const std::vector<std::string>& inputs, const std::function<bool(const Picture&)>& on_page,
               const std::function<bool(const std::string&, int, const Error&)>& on_error);

 private:
  PictureOptions options_;
};

}  // namespace quire::cli
