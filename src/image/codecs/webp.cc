// WebP by libwebp; an animation gives its first frame.
#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>

#include "image/codecs/codec.h"
#include "image/codecs/color.h"
#include "image/codecs/orientation.h"

namespace quire::codecs {
namespace {

bool Matches(Bytes bytes) {
  return StartsWith(bytes, "RIFF") && StartsWith(bytes, "WEBP", 8);
}

using Demuxer = std::unique_ptr<WebPDemuxer, decltype(&WebPDemuxDelete)>;

Demuxer OpenDemuxer(Bytes bytes) {
  const WebPData data{bytes.data(), bytes.size()};
  Demuxer demuxer(WebPDemux(&data), &WebPDemuxDelete);
  if (demuxer == nullptr) Damaged("the WebP is cut off or damaged");
  return demuxer;
}

Header ReadHeader(Bytes bytes, int, const Options&) {
  const Demuxer demuxer = OpenDemuxer(bytes);
  Header header{1, static_cast<int>(WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH)),
                static_cast<int>(WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT))};
  WebPChunkIterator chunk;
  if (WebPDemuxGetChunk(demuxer.get(), "EXIF", 1, &chunk) != 0)
    header.orientation = ExifOrientation({chunk.chunk.bytes, chunk.chunk.size});
  WebPDemuxReleaseChunkIterator(&chunk);
  return header;
}

// The animation decoder also takes still pictures: one path for all.
Image Decode(Job* job) {
  WebPAnimDecoderOptions options;
  if (WebPAnimDecoderOptionsInit(&options) == 0) Unknown("this libwebp is of another version");
  options.color_mode = MODE_RGBA;
  const WebPData data{job->bytes.data(), job->bytes.size()};
  const std::unique_ptr<WebPAnimDecoder, decltype(&WebPAnimDecoderDelete)> decoder(WebPAnimDecoderNew(&data, &options),
                                                                                   &WebPAnimDecoderDelete);
  uint8_t* rgba = nullptr;
  int timestamp = 0;
  if (decoder == nullptr || WebPAnimDecoderGetNext(decoder.get(), &rgba, &timestamp) == 0)
    Damaged("the WebP is cut off or damaged");
  Image image(job->header.width_px, job->header.height_px);
  LayOnWhite(rgba, image.rgb.size() / 3, image.rgb.data());
  return image;
}

}  // namespace

const Codec kWebp{"webp", Matches, ReadHeader, Decode};

}  // namespace quire::codecs
