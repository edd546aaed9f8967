// TIFF by libtiff, every page. Its RGBA interface takes most forms; 16-bit samples and CMYK are read row by row here.
#include <tiffio.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>

#include "image/codecs/codec.h"
#include "image/codecs/color.h"

namespace quire::codecs {
namespace {

constexpr size_t kMostWarnings = 8;
constexpr int64_t kMostSpareBytes = 16 << 20;  // that libtiff may take at once for other than pixels

// The bytes as libtiff reads them, and what it says about them.
struct Source {
  Bytes bytes;
  size_t at = 0;
  std::string error;
  std::vector<std::string> warnings;
};

std::string Format(const char* format, std::va_list arguments) {
  char text[256];
  std::vsnprintf(text, sizeof text, format, arguments);
  return text;
}

int KeepError(TIFF*, void* user, const char*, const char* format, std::va_list arguments) {
  Source& source = *static_cast<Source*>(user);
  if (!source.error.empty()) return 1;
  source.error = Format(format, arguments);
  // Where libtiff reads a whole strip or tile it counts no rows, and names row -1.
  constexpr std::string_view kNoRow = " at scanline 4294967295";
  if (const size_t at = source.error.find(kNoRow); at != source.error.npos) source.error.erase(at, kNoRow.size());
  return 1;
}

int KeepWarning(TIFF*, void* user, const char*, const char* format, std::va_list arguments) {
  Source& source = *static_cast<Source*>(user);
  if (source.warnings.size() < kMostWarnings) source.warnings.push_back("TIFF: " + Format(format, arguments));
  return 1;
}

tmsize_t Read(thandle_t handle, void* out, tmsize_t count) {
  Source& source = *static_cast<Source*>(handle);
  const size_t left = source.bytes.size() - std::min(source.at, source.bytes.size());
  const size_t taken = std::min(static_cast<size_t>(count), left);
  if (taken > 0) std::memcpy(out, source.bytes.data() + source.at, taken);
  source.at += taken;
  return static_cast<tmsize_t>(taken);
}

toff_t Seek(thandle_t handle, toff_t offset, int whence) {
  Source& source = *static_cast<Source*>(handle);
  if (whence == SEEK_CUR) offset += source.at;
  if (whence == SEEK_END) offset += source.bytes.size();
  return source.at = offset;
}

class File {
 public:
  File(Bytes bytes, int page, const Options& options) : source_{bytes, 0, {}, {}} {
    const std::unique_ptr<TIFFOpenOptions, decltype(&TIFFOpenOptionsFree)> open(TIFFOpenOptionsAlloc(),
                                                                                &TIFFOpenOptionsFree);
    TIFFOpenOptionsSetErrorHandlerExtR(open.get(), &KeepError, &source_);
    TIFFOpenOptionsSetWarningHandlerExtR(open.get(), &KeepWarning, &source_);
    TIFFOpenOptionsSetMaxSingleMemAlloc(open.get(), kMostSpareBytes + options.max_pixels * 8);
    tiff_.reset(TIFFClientOpenExt(
        "picture", "rm", &source_, &Read, [](thandle_t, void*, tmsize_t) { return tmsize_t{0}; }, &Seek,
        [](thandle_t) { return 0; }, [](thandle_t h) { return toff_t{static_cast<Source*>(h)->bytes.size()}; }, nullptr,
        nullptr, open.get()));
    if (tiff_ == nullptr) Fail();
    pages_ = TIFFNumberOfDirectories(get());
    if (page >= 0 && page < pages_ && TIFFSetDirectory(get(), static_cast<tdir_t>(page)) == 0) Fail();
  }

  File(const File&) = delete;

  TIFF* get() const { return tiff_.get(); }
  int pages() const { return pages_; }
  const std::vector<std::string>& warnings() const { return source_.warnings; }

  template <typename T>
  T Field(uint32_t tag, T otherwise) const {
    T value{};
    return TIFFGetFieldDefaulted(get(), tag, &value) != 0 ? value : otherwise;
  }

  [[noreturn]] void Fail() const {
    Damaged("the TIFF cannot be decoded: " + (source_.error.empty() ? "it is damaged" : source_.error));
  }

 private:
  Source source_;
  std::unique_ptr<TIFF, decltype(&TIFFClose)> tiff_{nullptr, &TIFFClose};
  int pages_ = 0;
};

bool Matches(Bytes bytes) {
  for (std::string_view magic : {std::string_view("II*\0", 4), std::string_view("MM\0*", 4),
                                 std::string_view("II+\0", 4), std::string_view("MM\0+", 4)})
    if (StartsWith(bytes, magic)) return true;
  return false;
}

Header ReadHeader(Bytes bytes, int page, const Options& options) {
  const File file(bytes, page, options);
  return {file.pages(), static_cast<int>(std::min<uint32_t>(file.Field<uint32_t>(TIFFTAG_IMAGEWIDTH, 0), INT32_MAX)),
          static_cast<int>(std::min<uint32_t>(file.Field<uint32_t>(TIFFTAG_IMAGELENGTH, 0), INT32_MAX)),
          file.Field<uint16_t>(TIFFTAG_ORIENTATION, 1)};
}

// What tells how samples become colours.
struct Layout {
  explicit Layout(const File& file)
      : bits(file.Field<uint16_t>(TIFFTAG_BITSPERSAMPLE, 1)),
        samples(file.Field<uint16_t>(TIFFTAG_SAMPLESPERPIXEL, 1)),
        photometric(file.Field<uint16_t>(TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISWHITE)) {
    const bool rows = file.Field<uint16_t>(TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG) == PLANARCONFIG_CONTIG &&
                      TIFFIsTiled(file.get()) == 0 &&
                      file.Field<uint16_t>(TIFFTAG_SAMPLEFORMAT, SAMPLEFORMAT_UINT) == SAMPLEFORMAT_UINT;
    const bool grey = photometric == PHOTOMETRIC_MINISBLACK || photometric == PHOTOMETRIC_MINISWHITE;
    colors = grey ? 1 : 3;
    deep_rows = rows && bits == 16 && (grey || photometric == PHOTOMETRIC_RGB) && samples >= colors;
    cmyk_rows = rows && bits == 8 && photometric == PHOTOMETRIC_SEPARATED && samples == 4;
    uint16_t extra = 0;
    const uint16_t* kinds = nullptr;
    if (TIFFGetFieldDefaulted(file.get(), TIFFTAG_EXTRASAMPLES, &extra, &kinds) != 0 && extra > 0 && samples > colors)
      alpha = kinds[0];
  }

  uint16_t bits, samples, photometric;
  int colors;
  bool deep_rows;  // 16-bit grey or RGB that lies in rows
  bool cmyk_rows;
  uint16_t alpha = EXTRASAMPLE_UNSPECIFIED;
};

// 16-bit samples: the high byte of colours, grey scaled; alpha on white.
void ConvertDeepRow(const Layout& layout, const uint16_t* in, int width_px, uint8_t* rgb) {
  for (int x = 0; x < width_px; ++x, in += layout.samples, rgb += 3) {
    const int alpha = layout.alpha == EXTRASAMPLE_UNSPECIFIED ? 255 : in[layout.colors] >> 8;
    for (int channel = 0; channel < 3; ++channel) {
      int value = layout.colors == 3 ? in[channel] >> 8 : (in[0] * 255 + 32895) >> 16;
      if (layout.photometric == PHOTOMETRIC_MINISWHITE) value = 255 - value;
      rgb[channel] = layout.alpha == EXTRASAMPLE_ASSOCALPHA
                         ? static_cast<uint8_t>(std::min(255, value + 255 - alpha))
                         : OnWhite(static_cast<uint8_t>(value), static_cast<uint8_t>(alpha));
    }
  }
}

template <typename Convert>
void DecodeRows(const File& file, size_t least_row_bytes, const Convert& convert, Image* image) {
  std::vector<uint16_t> row(static_cast<size_t>(TIFFScanlineSize(file.get())) / 2 + 1);
  if (row.size() * 2 < least_row_bytes) file.Fail();
  for (int y = 0; y < image->height_px; ++y) {
    if (TIFFReadScanline(file.get(), row.data(), static_cast<uint32_t>(y), 0) < 0) file.Fail();
    convert(row.data(), image->row(y));
  }
}

void DecodeByRgba(const File& file, Image* image) {
  char message[1024] = {};
  TIFFRGBAImage reader;
  if (TIFFRGBAImageOK(file.get(), message) == 0 || TIFFRGBAImageBegin(&reader, file.get(), 1, message) == 0)
    Unknown("this kind of TIFF is not known: " + std::string(message));
  const std::unique_ptr<TIFFRGBAImage, decltype(&TIFFRGBAImageEnd)> owner(&reader, &TIFFRGBAImageEnd);
  reader.req_orientation = reader.orientation;  // as stored
  std::vector<uint32_t> raster(image->rgb.size() / 3);
  if (TIFFRGBAImageGet(&reader, raster.data(), static_cast<uint32_t>(image->width_px),
                       static_cast<uint32_t>(image->height_px)) == 0)
    file.Fail();
  uint8_t* rgb = image->rgb.data();
  for (uint32_t pixel : raster) {  // alpha is multiplied in
    const uint32_t white = 255 - TIFFGetA(pixel);
    *rgb++ = static_cast<uint8_t>(std::min(255u, TIFFGetR(pixel) + white));
    *rgb++ = static_cast<uint8_t>(std::min(255u, TIFFGetG(pixel) + white));
    *rgb++ = static_cast<uint8_t>(std::min(255u, TIFFGetB(pixel) + white));
  }
}

Bytes ReadProfile(const File& file) {
  uint32_t size = 0;
  const void* data = nullptr;
  if (TIFFGetField(file.get(), TIFFTAG_ICCPROFILE, &size, &data) == 0) return {};
  return {static_cast<const uint8_t*>(data), size};
}

Image Decode(Job* job) {
  const File file(job->bytes, job->page, job->options);
  Image image(job->header.width_px, job->header.height_px);
  const size_t width = static_cast<size_t>(image.width_px);
  const Layout layout(file);
  if (layout.deep_rows) {
    const auto convert = [&](const uint16_t* in, uint8_t* out) { ConvertDeepRow(layout, in, image.width_px, out); };
    DecodeRows(file, width * layout.samples * 2, convert, &image);
  } else if (layout.cmyk_rows) {
    const CmykToRgb to_rgb(job->options.raw_color ? Bytes() : ReadProfile(file), false);
    const auto convert = [&](const uint16_t* in, uint8_t* out) {
      to_rgb.Convert(reinterpret_cast<const uint8_t*>(in), width, out);
    };
    DecodeRows(file, width * 4, convert, &image);
  } else {
    DecodeByRgba(file, &image);
  }
  job->warnings = file.warnings();
  return image;
}

}  // namespace

const Codec kTiff{"tiff", Matches, ReadHeader, Decode};

}  // namespace quire::codecs
