#include "server/jpeg.h"

#include <cstdio>
#include <cstdlib>
// clang-format off: needs <cstdio> before it
#include <jpeglib.h>
// clang-format on

namespace quire {

std::vector<uint8_t> EncodeJpeg(const Image& image, int quality) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* memory = nullptr;
  unsigned long bytes = 0;  // NOLINT(google-runtime-int): libjpeg's type
  jpeg_mem_dest(&jpeg, &memory, &bytes);
  jpeg.image_width = static_cast<JDIMENSION>(image.width_px);
  jpeg.image_height = static_cast<JDIMENSION>(image.height_px);
  jpeg.input_components = 3;
  jpeg.in_color_space = JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, quality, TRUE);
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < jpeg.image_height) {
    JSAMPROW row = const_cast<uint8_t*>(image.row(static_cast<int>(jpeg.next_scanline)));
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::vector<uint8_t> file(memory, memory + bytes);
  jpeg_destroy_compress(&jpeg);
  std::free(memory);
  return file;
}

}  // namespace quire
