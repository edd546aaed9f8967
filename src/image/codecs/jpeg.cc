// JPEG by libjpeg-turbo, with libjpeg's defaults (accurate integer DCT, smooth upsampling) as Pillow has them.
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
// clang-format off: needs <cstdio> before it
#include <jpeglib.h>
// clang-format on

#include "image/codecs/codec.h"
#include "image/codecs/color.h"
#include "image/codecs/orientation.h"

namespace quire::codecs {
namespace {

constexpr int kExifMarker = JPEG_APP0 + 1;
constexpr int kIccMarker = JPEG_APP0 + 2;
constexpr int kMostScans = 200;  // a progressive picture needs about ten; thousands are an attack on the processor

// libjpeg's state. Its error exit jumps back into Try, over no C++ object.
class Decompressor {
 public:
  Decompressor() {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = &Fail;
    errors_.emit_message = &Warn;
    info_.client_data = this;
    progress_.progress_monitor = &LimitScans;
  }
  ~Decompressor() { jpeg_destroy_decompress(&info_); }
  Decompressor(const Decompressor&) = delete;

  void Open(Bytes bytes) {
    Try([&] {
      jpeg_create_decompress(&info_);
      info_.progress = &progress_;
      jpeg_mem_src(&info_, bytes.data(), bytes.size());
      jpeg_save_markers(&info_, kExifMarker, 0xFFFF);
      jpeg_save_markers(&info_, kIccMarker, 0xFFFF);
      jpeg_read_header(&info_, TRUE);
    });
  }

  jpeg_decompress_struct& info() { return info_; }

  // Runs libjpeg calls; a failure in them becomes an Error here.
  template <typename Calls>
  void Try(const Calls& calls) {
    if (!Guarded(calls)) Damaged(std::string("the JPEG cannot be decoded: ") + message_);
  }

  // What libjpeg passed over, if anything.
  std::string Warning() const {
    if (errors_.num_warnings == 0) return {};
    return std::to_string(errors_.num_warnings) + " places of the JPEG are damaged, the first: " + message_;
  }

 private:
  template <typename Calls>
  bool Guarded(const Calls& calls) {
    if (setjmp(jump_) != 0) return false;
    calls();
    return true;
  }
  static Decompressor& Self(j_common_ptr info) { return *static_cast<Decompressor*>(info->client_data); }
  static void Fail(j_common_ptr info) {
    info->err->format_message(info, Self(info).message_);
    longjmp(Self(info).jump_, 1);
  }
  static void Warn(j_common_ptr info, int level) {
    if (level >= 0) return;
    if (info->err->num_warnings++ == 0) info->err->format_message(info, Self(info).message_);
  }
  static void LimitScans(j_common_ptr info) {
    if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMostScans) return;
    std::strcpy(Self(info).message_, "too many scans");
    longjmp(Self(info).jump_, 1);
  }

  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf jump_;
  char message_[JMSG_LENGTH_MAX] = {};
};

bool Matches(Bytes bytes) {
  return StartsWith(bytes, "\xFF\xD8\xFF");
}

Header ReadHeader(Bytes bytes, int, const Options&) {
  Decompressor jpeg;
  jpeg.Open(bytes);
  Header header{1, static_cast<int>(jpeg.info().image_width), static_cast<int>(jpeg.info().image_height)};
  for (auto marker = jpeg.info().marker_list; marker != nullptr; marker = marker->next) {
    const Bytes data(marker->data, marker->data_length);
    if (marker->marker != kExifMarker || !StartsWith(data, "Exif")) continue;
    header.orientation = ExifOrientation(data);
    break;
  }
  return header;
}

std::vector<uint8_t> ReadProfile(Decompressor* jpeg) {
  JOCTET* data = nullptr;
  unsigned size = 0;
  jpeg->Try([&] { jpeg_read_icc_profile(&jpeg->info(), &data, &size); });
  std::vector<uint8_t> profile(data, data + size);
  free(data);
  return profile;
}

Image Decode(Job* job) {
  Decompressor jpeg;
  jpeg.Open(job->bytes);
  jpeg_decompress_struct& info = jpeg.info();
  Image image(job->header.width_px, job->header.height_px);
  uint8_t* const rgb = image.rgb.data();
  const size_t width = info.image_width;
  const size_t row_bytes = image.row_bytes();
  if (info.num_components == 4) {
    info.out_color_space = JCS_CMYK;  // from YCCK too
    const CmykToRgb convert(job->options.raw_color ? std::vector<uint8_t>() : ReadProfile(&jpeg),
                            info.saw_Adobe_marker != FALSE);  // Adobe stores how much light is left
    std::vector<uint8_t> cmyk(width * 4);
    uint8_t* const line = cmyk.data();
    jpeg.Try([&] {
      jpeg_start_decompress(&info);
      while (info.output_scanline < info.output_height) {
        JSAMPROW row = line;
        const size_t y = info.output_scanline;
        jpeg_read_scanlines(&info, &row, 1);
        convert.Convert(line, width, rgb + y * row_bytes);
      }
    });
  } else {
    info.out_color_space = JCS_RGB;
    jpeg.Try([&] {
      jpeg_start_decompress(&info);
      while (info.output_scanline < info.output_height) {
        JSAMPROW row = rgb + info.output_scanline * row_bytes;
        jpeg_read_scanlines(&info, &row, 1);
      }
    });
  }
  if (const std::string warning = jpeg.Warning(); !warning.empty()) job->warnings.push_back(warning);
  return image;
}

}  // namespace

const Codec kJpeg{"jpeg", Matches, ReadHeader, Decode};

}  // namespace quire::codecs
