// What every picture format gives: its name, how to know it, its header, its pixels. The codecs are linked into the
// decode process (and tests) only, never into the engine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "image/image.h"

namespace quire::codecs {

using Bytes = std::span<const uint8_t>;

struct Options {
  int64_t max_pixels = 200'000'000;  // of one page
  bool raw_color = false;            // CMYK by Pillow's arithmetic, even when the picture has a profile
};

struct Header {
  int pages = 1;
  int width_px = 0;  // as stored, before turning
  int height_px = 0;
  int orientation = 1;  // EXIF's 1 to 8: how to turn what Decode gives
};

// One page of a file being decoded.
struct Job {
  Bytes bytes;
  int page = 0;
  Header header;
  Options options;
  std::vector<std::string> warnings;  // what a lenient codec passed over
};

// The functions throw Error{kBadInput} for damaged files, {kUnsupported} for forms they do not know.
struct Codec {
  const char* name;
  bool (*matches)(Bytes bytes);  // by content
  Header (*read_header)(Bytes bytes, int page, const Options& options);
  // The page as stored, [header.height_px, header.width_px, 3], alpha laid on white.
  Image (*decode)(Job* job);
};

extern const Codec kJpeg, kPng, kWebp, kTiff, kHeif, kGif, kBmp, kPnm, kJpeg2000;

inline bool StartsWith(Bytes bytes, std::string_view magic, size_t at = 0) {
  return bytes.size() >= at + magic.size() &&
         std::equal(magic.begin(), magic.end(), bytes.begin() + at,
                    [](char a, uint8_t b) { return static_cast<uint8_t>(a) == b; });
}

// Damage found in the file, told in one sentence.
[[noreturn]] inline void Damaged(const std::string& what) {
  throw Error(ErrorKind::kBadInput, what);
}
[[noreturn]] inline void Unknown(const std::string& what) {
  throw Error(ErrorKind::kUnsupported, what);
}

}  // namespace quire::codecs
