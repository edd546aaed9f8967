#include "image/codecs/picture.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "image/codecs/orientation.h"

namespace quire {

using namespace codecs;

namespace {

// In the order in which a file is asked: formats without a certain magic number come last.
constexpr const Codec* kCodecs[] = {&kJpeg, &kPng, &kWebp, &kTiff, &kHeif, &kGif, &kJpeg2000, &kBmp, &kPnm};

const Codec& FindCodec(Bytes bytes) {
  if (bytes.empty()) Damaged("the file is empty");
  for (const Codec* codec : kCodecs)
    if (codec->matches(bytes)) return *codec;
  constexpr std::string_view kPdf = "%PDF-";
  if (bytes.size() >= kPdf.size() && std::equal(kPdf.begin(), kPdf.end(), bytes.begin()))
    throw Error(ErrorKind::kUnsupported, "this is a PDF, wanted a picture", {},
                "draw its pages first, with Poppler: pdftoppm -r 144 -png FILE.pdf page");
  std::string names;
  for (const Codec* codec : kCodecs) names += std::string(names.empty() ? "" : ", ") + codec->name;
  throw Error(ErrorKind::kUnsupported, "this is no picture of a known format", {}, "known are " + names);
}

Header ReadHeader(const Codec& codec, Bytes bytes, int page, const Options& options) {
  const Header header = codec.read_header(bytes, page, options);
  if (page < 0 || page >= header.pages)
    throw Error(ErrorKind::kNotFound,
                "wanted page " + std::to_string(page + 1) + ", found " + std::to_string(header.pages) + " pages");
  const std::string size = std::to_string(header.width_px) + " x " + std::to_string(header.height_px);
  if (header.width_px < 1 || header.height_px < 1) Damaged("wanted a picture with pixels, found one of " + size);
  if (int64_t{header.width_px} * header.height_px > options.max_pixels)
    throw Error(ErrorKind::kTooLarge, "wanted at most " + std::to_string(options.max_pixels) + " pixels, found " + size,
                {}, "raise the pixel limit or scale the picture down");
  return header;
}

}  // namespace

PictureInfo InspectPicture(Bytes bytes, int page, const Options& options) {
  const Codec& codec = FindCodec(bytes);
  const Header header = ReadHeader(codec, bytes, page, options);
  PictureInfo info{codec.name, header.pages, header.width_px, header.height_px, header.orientation};
  if (SwapsSides(header.orientation)) std::swap(info.width_px, info.height_px);
  return info;
}

Image DecodePicture(Bytes bytes, int page, const Options& options, std::vector<std::string>* warnings) {
  const Codec& codec = FindCodec(bytes);
  Job job{bytes, page, ReadHeader(codec, bytes, page, options), options, {}};
  Image image = codec.decode(&job);
  warnings->insert(warnings->end(), job.warnings.begin(), job.warnings.end());
  return TurnUpright(std::move(image), job.header.orientation);
}

}  // namespace quire
