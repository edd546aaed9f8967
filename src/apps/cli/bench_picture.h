// The pictures that a benchmark sends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "image/decoder_client.h"
#include "image/image.h"

namespace quire::cli {

struct BenchPicture {
  std::string name;
  std::vector<uint8_t> bytes;  // of the file
};

// A picture to be sent many times.
struct BenchOriginal {
  BenchPicture file;
  Image pixels;  // where it is to be varied
};

// One thread.
class BenchPictures {
 public:
  // same: a picture is sent as it is, however often. Else each time as a PNG that nobody has seen, in no run.
  explicit BenchPictures(bool same);

  bool same() const { return same_; }
  // Throws Error{kNotFound}, and as DecodePool::Decode does.
  BenchOriginal Load(const std::string& path);
  BenchPicture Make(const BenchOriginal& original);

 private:
  const bool same_;
  DecodePool decoders_;
  uint64_t number_;
};

// The picture with each of 32 upright bands made up to 3 of 255 levels greyer, as `number` says: for the eye and the
// model the same, but no part of it that a view shows, scaled or not, is byte for byte that of another number.
Image Varied(const Image& picture, uint64_t number);

}  // namespace quire::cli
