// Windows and OS/2 bitmaps, read here: palettes, 16, 24 and 32 bits, bit fields, run lengths, both directions.
#include <bit>
#include <cstdlib>

#include "image/codecs/byte_reader.h"
#include "image/codecs/codec.h"
#include "image/codecs/color.h"

namespace quire::codecs {
namespace {

constexpr size_t kFileHeaderBytes = 14;

enum Compression : uint32_t { kRgb = 0, kRle8 = 1, kRle4 = 2, kBitFields = 3, kAlphaBitFields = 6 };

// A channel within a pixel of 16 or 32 bits.
struct Field {
  uint32_t mask = 0;

  uint8_t Of(uint32_t pixel) const {
    if (mask == 0) return 0;
    const int shift = std::countr_zero(mask);
    const uint64_t most = mask >> shift;
    return static_cast<uint8_t>(((pixel & mask) >> shift) * uint64_t{255} / most);
  }
};

struct Form {
  int width = 0, height = 0;
  bool from_top = false;
  int bits = 0;
  uint32_t compression = kRgb;
  Field red, green, blue, alpha;
  size_t palette_at = 0, color_bytes = 4, colors = 0;
  size_t pixels_at = 0;

  size_t row_bytes() const { return (static_cast<size_t>(width) * bits + 31) / 32 * 4; }
};

Form ReadForm(Bytes bytes) {
  const ByteReader reader(bytes, true);
  const size_t info = kFileHeaderBytes;
  const size_t info_bytes = reader.U32(info);
  Form form;
  form.pixels_at = reader.U32(10);
  form.palette_at = info + info_bytes;
  if (info_bytes == 12) {
    form.width = reader.U16(info + 4);
    form.height = reader.U16(info + 6);
    form.bits = reader.U16(info + 10);
    form.color_bytes = 3;
  } else if (info_bytes >= 16) {
    form.width = reader.I32(info + 4);
    const int32_t height = reader.I32(info + 8);
    form.from_top = height < 0;
    form.height = height == INT32_MIN ? 0 : std::abs(height);
    form.bits = reader.U16(info + 14);
    if (info_bytes >= 40) {
      form.compression = reader.U32(info + 16);
      form.colors = reader.U32(info + 32);
    }
  } else {
    Damaged("the bitmap's header has " + std::to_string(info_bytes) + " bytes");
  }
  if (form.bits == 16) {
    form.red.mask = 0x7C00, form.green.mask = 0x03E0, form.blue.mask = 0x001F;
  } else {
    form.red.mask = 0xFF0000, form.green.mask = 0xFF00, form.blue.mask = 0xFF;
  }
  if (form.compression == kBitFields || form.compression == kAlphaBitFields) {
    const size_t masks = info + 40;  // inside the longer headers, behind the short one
    form.red.mask = reader.U32(masks);
    form.green.mask = reader.U32(masks + 4);
    form.blue.mask = reader.U32(masks + 8);
    if (info_bytes >= 56 || form.compression == kAlphaBitFields) form.alpha.mask = reader.U32(masks + 12);
    if (info_bytes == 40) form.palette_at += form.compression == kAlphaBitFields ? 16 : 12;
  }
  const size_t most_colors = form.bits <= 8 ? size_t{1} << form.bits : 0;
  if (form.colors == 0 || form.colors > most_colors) form.colors = most_colors;
  return form;
}

void CheckForm(const Form& form) {
  const bool fields = form.compression == kBitFields || form.compression == kAlphaBitFields;
  const bool known = form.compression == kRgb ? form.bits == 1 || form.bits == 2 || form.bits == 4 || form.bits == 8 ||
                                                    form.bits == 16 || form.bits == 24 || form.bits == 32
                                              : (form.compression == kRle8 && form.bits == 8) ||
                                                    (form.compression == kRle4 && form.bits == 4) ||
                                                    (fields && (form.bits == 16 || form.bits == 32));
  if (!known)
    Unknown("bitmaps of " + std::to_string(form.bits) + " bits with compression " + std::to_string(form.compression) +
            " are not known");
}

class Decoder {
 public:
  explicit Decoder(Bytes bytes) : form_(ReadForm(bytes)), bytes_(bytes), reader_(bytes, true) {
    CheckForm(form_);
    for (size_t i = 0; i < form_.colors; ++i) {
      const size_t at = form_.palette_at + i * form_.color_bytes;
      palette_.push_back({reader_.U8(at + 2), reader_.U8(at + 1), reader_.U8(at)});
    }
  }

  Image Decode() {
    Image image(form_.width, form_.height);
    if (form_.compression == kRle8 || form_.compression == kRle4) {
      DecodeRuns(&image);
      return image;
    }
    const size_t row_bytes = form_.row_bytes();
    if (form_.pixels_at > bytes_.size() ||
        (bytes_.size() - form_.pixels_at) / row_bytes < static_cast<size_t>(form_.height))
      Damaged("the bitmap is cut off");
    for (int y = 0; y < form_.height; ++y) DecodeRow(form_.pixels_at + y * row_bytes, Row(&image, y));
    return image;
  }

 private:
  struct Color {
    uint8_t red, green, blue;
  };

  // Row y in the order of the file.
  uint8_t* Row(Image* image, int y) const { return image->row(form_.from_top ? y : form_.height - 1 - y); }

  void PutIndexed(size_t index, uint8_t* rgb) const {
    const Color color = index < palette_.size() ? palette_[index] : Color{0, 0, 0};
    rgb[0] = color.red, rgb[1] = color.green, rgb[2] = color.blue;
  }

  void PutFields(uint32_t pixel, uint8_t* rgb) const {
    const uint8_t alpha = form_.alpha.mask == 0 ? uint8_t{255} : form_.alpha.Of(pixel);
    rgb[0] = OnWhite(form_.red.Of(pixel), alpha);
    rgb[1] = OnWhite(form_.green.Of(pixel), alpha);
    rgb[2] = OnWhite(form_.blue.Of(pixel), alpha);
  }

  void DecodeRow(size_t at, uint8_t* rgb) const {
    for (size_t x = 0; x < static_cast<size_t>(form_.width); ++x, rgb += 3) {
      switch (form_.bits) {
        case 16:
          PutFields(reader_.U16(at + x * 2), rgb);
          break;
        case 24:
          rgb[0] = reader_.U8(at + x * 3 + 2), rgb[1] = reader_.U8(at + x * 3 + 1), rgb[2] = reader_.U8(at + x * 3);
          break;
        case 32:
          PutFields(reader_.U32(at + x * 4), rgb);
          break;
        default: {
          const size_t bit = x * form_.bits;
          PutIndexed(reader_.U8(at + bit / 8) >> (8 - form_.bits - bit % 8) & ((1u << form_.bits) - 1), rgb);
        }
      }
    }
  }

  // Runs: (count, colour), or 0 and: 0 end of row, 1 end of picture, 2 a jump, else that many plain colours. What no
  // run covers has colour 0.
  void DecodeRuns(Image* image) const {
    const bool nibbles = form_.compression == kRle4;
    for (size_t i = 0; i < image->rgb.size(); i += 3) PutIndexed(0, image->rgb.data() + i);
    int x = 0;
    int y = 0;
    const auto put = [&](size_t index) {
      if (x < form_.width) PutIndexed(index, Row(image, y) + size_t{3} * x++);
    };
    const auto color = [&](uint8_t pair, int i) { return nibbles ? (i % 2 == 0 ? pair >> 4 : pair & 15) : int{pair}; };
    size_t at = form_.pixels_at;
    while (y < form_.height) {
      if (at + 1 >= bytes_.size()) Damaged("the bitmap is cut off");
      const int count = reader_.U8(at);
      const uint8_t value = reader_.U8(at + 1);
      at += 2;
      if (count > 0) {
        for (int i = 0; i < count; ++i) put(color(value, i));
      } else if (value == 0) {
        x = 0;
        ++y;
      } else if (value == 1) {
        return;
      } else if (value == 2) {
        x += reader_.U8(at);
        y += reader_.U8(at + 1);
        at += 2;
      } else {
        for (int i = 0; i < value; ++i) put(color(reader_.U8(at + (nibbles ? i / 2 : i)), i));
        const size_t data_bytes = nibbles ? (value + 1) / 2 : value;
        at += (data_bytes + 1) / 2 * 2;
      }
    }
  }

  Form form_;
  Bytes bytes_;
  ByteReader reader_;
  std::vector<Color> palette_;
};

bool Matches(Bytes bytes) {
  return StartsWith(bytes, "BM") && bytes.size() >= kFileHeaderBytes + 12;
}

Header ReadHeader(Bytes bytes, int, const Options&) {
  const Form form = ReadForm(bytes);
  return {1, form.width, form.height};
}

Image Decode(Job* job) {
  return Decoder(job->bytes).Decode();
}

}  // namespace

const Codec kBmp{"bmp", Matches, ReadHeader, Decode};

}  // namespace quire::codecs
