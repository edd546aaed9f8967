// JPEG 2000 by Leptonica.
#include <leptonica/allheaders.h>

#include <memory>

#include "image/codecs/codec.h"
#include "image/codecs/color.h"

namespace quire::codecs {
namespace {

bool Matches(Bytes bytes) {
  return StartsWith(bytes, std::string_view("\0\0\0\x0CjP  \r\n\x87\n", 12)) || StartsWith(bytes, "\xFF\x4F\xFF\x51");
}

Header ReadHeader(Bytes bytes, int, const Options&) {
  setMsgSeverity(L_SEVERITY_NONE);
  Header header;
  l_int32 bits = 0, samples = 0;
  if (readHeaderMemJp2k(bytes.data(), bytes.size(), &header.width_px, &header.height_px, &bits, &samples, nullptr) != 0)
    Damaged("the JPEG 2000 has no header that can be read");
  if (bits > 16 || samples < 1 || samples > 4) Unknown("this kind of JPEG 2000 is not known");
  return header;
}

struct Free {
  void operator()(PIX* pix) const { pixDestroy(&pix); }
};

Image Decode(Job* job) {
  const std::unique_ptr<PIX, Free> pix(pixReadMemJp2k(job->bytes.data(), job->bytes.size(), 1, nullptr, 0, 0));
  if (pix == nullptr) Damaged("the JPEG 2000 cannot be decoded");
  Image image(pixGetWidth(pix.get()), pixGetHeight(pix.get()));
  if (image.width_px != job->header.width_px || image.height_px != job->header.height_px)
    Damaged("the JPEG 2000 holds another number of pixels than its header says");
  const int depth = pixGetDepth(pix.get());
  if (depth != 8 && depth != 32) Unknown("this kind of JPEG 2000 is not known");
  const bool alpha = pixGetSpp(pix.get()) == 4;
  for (int y = 0; y < image.height_px; ++y) {
    const l_uint32* line = pixGetData(pix.get()) + static_cast<ptrdiff_t>(y) * pixGetWpl(pix.get());
    uint8_t* rgb = image.row(y);
    for (int x = 0; x < image.width_px; ++x, rgb += 3) {
      if (depth == 8) {
        rgb[0] = rgb[1] = rgb[2] = static_cast<uint8_t>(GET_DATA_BYTE(line, x));
        continue;
      }
      const uint8_t opacity = alpha ? static_cast<uint8_t>(line[x] >> L_ALPHA_SHIFT) : uint8_t{255};
      rgb[0] = OnWhite(static_cast<uint8_t>(line[x] >> L_RED_SHIFT), opacity);
      rgb[1] = OnWhite(static_cast<uint8_t>(line[x] >> L_GREEN_SHIFT), opacity);
      rgb[2] = OnWhite(static_cast<uint8_t>(line[x] >> L_BLUE_SHIFT), opacity);
    }
  }
  return image;
}

}  // namespace

const Codec kJpeg2000{"jpeg2000", Matches, ReadHeader, Decode};

}  // namespace quire::codecs
