// PNG by libpng.
#include <png.h>

#include <csetjmp>
#include <cstring>
#include <new>

#include "image/codecs/byte_reader.h"
#include "image/codecs/codec.h"
#include "image/codecs/color.h"
#include "image/codecs/orientation.h"

namespace quire::codecs {
namespace {

constexpr std::string_view kSignature = "\x89PNG\r\n\x1A\n";
constexpr size_t kMostChunkBytes = 64 << 20;  // of what libpng unpacks of texts and profiles

// libpng's state. Its error function jumps back into Try, over no C++ object.
class Reader {
 public:
  Reader() {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &Fail, [](png_structp, png_const_charp) {});
    info_ = png_create_info_struct(png_);
    if (info_ == nullptr) throw std::bad_alloc();
  }
  ~Reader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  Reader(const Reader&) = delete;

  void Open(Bytes bytes) {
    left_ = bytes;
    Try([&] {
      png_set_read_fn(png_, this, &Read);
      png_set_user_limits(png_, 0x7FFFFFFF, 0x7FFFFFFF);  // pixels are limited by the header's reader
      png_set_chunk_malloc_max(png_, kMostChunkBytes);
      png_read_info(png_, info_);
    });
  }

  png_structp png() { return png_; }
  png_infop info() { return info_; }

  template <typename Calls>
  void Try(const Calls& calls) {
    if (!Guarded(calls)) Damaged(std::string("the PNG cannot be decoded: ") + message_);
  }

 private:
  template <typename Calls>
  bool Guarded(const Calls& calls) {
    if (setjmp(jump_) != 0) return false;
    calls();
    return true;
  }
  static void Fail(png_structp png, png_const_charp message) {
    Reader& self = *static_cast<Reader*>(png_get_error_ptr(png));
    std::strncpy(self.message_, message, sizeof self.message_ - 1);
    longjmp(self.jump_, 1);
  }
  static void Read(png_structp png, png_bytep out, size_t count) {
    Reader& self = *static_cast<Reader*>(png_get_io_ptr(png));
    if (count > self.left_.size()) png_error(png, "the file is cut off");
    std::memcpy(out, self.left_.data(), count);
    self.left_ = self.left_.subspan(count);
  }

  Bytes left_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::jmp_buf jump_;
  char message_[128] = {};
};

// The EXIF chunk may stand behind the pixels, so the chunks are walked.
int FindOrientation(Bytes bytes) {
  const ByteReader reader(bytes, false);
  for (size_t at = kSignature.size(); at + 12 <= bytes.size();) {
    const size_t length = reader.U32(at);
    if (length > bytes.size() - at - 12) break;
    if (StartsWith(bytes, "eXIf", at + 4)) return ExifOrientation(bytes.subspan(at + 8, length));
    at += length + 12;
  }
  return 1;
}

bool Matches(Bytes bytes) {
  return StartsWith(bytes, kSignature);
}

Header ReadHeader(Bytes bytes, int, const Options&) {
  Reader reader;
  reader.Open(bytes);
  return {1, static_cast<int>(png_get_image_width(reader.png(), reader.info())),
          static_cast<int>(png_get_image_height(reader.png(), reader.info())), FindOrientation(bytes)};
}

Image Decode(Job* job) {
  Reader reader;
  reader.Open(job->bytes);
  const png_structp png = reader.png();
  const png_infop info = reader.info();
  const bool has_alpha =
      (png_get_color_type(png, info) & PNG_COLOR_MASK_ALPHA) != 0 || png_get_valid(png, info, PNG_INFO_tRNS) != 0;
  const bool grey = (png_get_color_type(png, info) & PNG_COLOR_MASK_COLOR) == 0;
  reader.Try([&] {
    png_set_expand(png);  // palettes, few bits and tRNS to 8-bit channels
    if (grey) {
      png_set_scale_16(png);
    } else {
      png_set_strip_16(png);  // the high byte, as Pillow
    }
    png_set_gray_to_rgb(png);
    if (has_alpha) png_set_add_alpha(png, 0xFF, PNG_FILLER_AFTER);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
  });
  const size_t height = static_cast<size_t>(job->header.height_px);
  const size_t row_bytes = png_get_rowbytes(png, info);
  const size_t pixels = height * static_cast<size_t>(job->header.width_px);
  Image image(job->header.width_px, job->header.height_px);
  std::vector<uint8_t> rgba(has_alpha ? pixels * 4 : 0);
  uint8_t* const out = has_alpha ? rgba.data() : image.rgb.data();
  if (row_bytes != static_cast<size_t>(job->header.width_px) * (has_alpha ? 4 : 3)) Damaged("the PNG has odd channels");
  std::vector<png_bytep> rows(height);
  for (size_t y = 0; y < height; ++y) rows[y] = out + y * row_bytes;
  png_bytepp const lines = rows.data();
  reader.Try([&] { png_read_image(png, lines); });
  if (has_alpha) LayOnWhite(rgba.data(), pixels, image.rgb.data());
  return image;
}

}  // namespace

const Codec kPng{"png", Matches, ReadHeader, Decode};

}  // namespace quire::codecs
