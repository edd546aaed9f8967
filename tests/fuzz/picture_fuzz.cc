// Any bytes as a picture: pixels of the size that the header told, or an Error of the file.
// A good corpus to begin with is tests/data/image/pictures; LSAN_OPTIONS=suppressions=tests/fuzz/picture_leaks.txt.
#include "image/codecs/picture.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const quire::codecs::Options options{.max_pixels = 1 << 18};
  const quire::codecs::Bytes bytes(data, size);
  for (int page : {0, 1}) {
    try {
      const quire::PictureInfo info = quire::InspectPicture(bytes, page, options);
      std::vector<std::string> warnings;
      const quire::Image image = quire::DecodePicture(bytes, page, options, &warnings);
      if (image.width_px != info.width_px || image.height_px != info.height_px) __builtin_trap();
      if (image.rgb.size() != image.row_bytes() * static_cast<size_t>(image.height_px)) __builtin_trap();
    } catch (const quire::Error& error) {
      if (error.kind() == quire::ErrorKind::kInternal) __builtin_trap();
    }
  }
  return 0;
}
