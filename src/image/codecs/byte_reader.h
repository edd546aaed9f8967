// Numbers out of foreign bytes.
#pragma once

#include "image/codecs/codec.h"

namespace quire::codecs {

// Reads at any offset; what lies past the end reads as 0.
class ByteReader {
 public:
  ByteReader(Bytes bytes, bool little_endian) : bytes_(bytes), little_endian_(little_endian) {}

  uint8_t U8(size_t at) const { return at < bytes_.size() ? bytes_[at] : uint8_t{0}; }
  uint16_t U16(size_t at) const { return static_cast<uint16_t>(Join(at, 2)); }
  uint32_t U32(size_t at) const { return Join(at, 4); }
  int32_t I32(size_t at) const { return static_cast<int32_t>(U32(at)); }

 private:
  uint32_t Join(size_t at, size_t count) const {
    uint32_t value = 0;
    for (size_t i = 0; i < count; ++i) value = value << 8 | U8(little_endian_ ? at + count - 1 - i : at + i);
    return value;
  }

  Bytes bytes_;
  bool little_endian_;
};

}  // namespace quire::codecs
