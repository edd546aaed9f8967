// HEIF and AVIF by libheif, which turns pictures itself: their EXIF orientation is not to be applied again.
#include <libheif/heif.h>

#include <memory>

#include "image/codecs/codec.h"
#include "image/codecs/color.h"

namespace quire::codecs {
namespace {

void Check(const heif_error& error) {
  if (error.code == heif_error_Ok) return;
  const std::string what = std::string("the HEIF or AVIF cannot be decoded: ") + error.message;
  if (error.code == heif_error_Unsupported_filetype || error.code == heif_error_Unsupported_feature) Unknown(what);
  Damaged(what);
}

using Context = std::unique_ptr<heif_context, decltype(&heif_context_free)>;
using Handle = std::unique_ptr<const heif_image_handle, decltype(&heif_image_handle_release)>;

struct File {
  Context context;
  Handle primary;
};

File Open(Bytes bytes, const Options& options) {
  Context context(heif_context_alloc(), &heif_context_free);
  heif_context_set_max_decoding_threads(context.get(), 0);
  // Only a bound for the sides; the product is checked with every format's header.
  heif_context_set_maximum_image_size_limit(context.get(),
                                            static_cast<int>(std::min<int64_t>(options.max_pixels, 1 << 20)));
  Check(heif_context_read_from_memory_without_copy(context.get(), bytes.data(), bytes.size(), nullptr));
  heif_image_handle* primary = nullptr;
  Check(heif_context_get_primary_image_handle(context.get(), &primary));
  return {std::move(context), Handle(primary, &heif_image_handle_release)};
}

bool Matches(Bytes bytes) {
  if (!StartsWith(bytes, "ftyp", 4)) return false;
  for (const char* brand : {"heic", "heix", "hevc", "heim", "heis", "hevm", "mif1", "msf1", "avif", "avis"})
    if (StartsWith(bytes, brand, 8)) return true;
  return false;
}

Header ReadHeader(Bytes bytes, int, const Options& options) {
  const File file = Open(bytes, options);
  return {1, heif_image_handle_get_width(file.primary.get()), heif_image_handle_get_height(file.primary.get())};
}

Image Decode(Job* job) {
  const File file = Open(job->bytes, job->options);
  const bool alpha = heif_image_handle_has_alpha_channel(file.primary.get()) != 0;
  heif_image* decoded = nullptr;
  Check(heif_decode_image(file.primary.get(), &decoded, heif_colorspace_RGB,
                          alpha ? heif_chroma_interleaved_RGBA : heif_chroma_interleaved_RGB, nullptr));
  const std::unique_ptr<heif_image, decltype(&heif_image_release)> owner(decoded, &heif_image_release);
  const int width_px = heif_image_get_width(decoded, heif_channel_interleaved);
  const int height_px = heif_image_get_height(decoded, heif_channel_interleaved);
  if (width_px != job->header.width_px || height_px != job->header.height_px)
    Damaged("the HEIF or AVIF holds " + std::to_string(width_px) + " x " + std::to_string(height_px) +
            " pixels, its header says otherwise");
  int stride = 0;
  const uint8_t* row = heif_image_get_plane_readonly(decoded, heif_channel_interleaved, &stride);
  if (row == nullptr) Damaged("the HEIF or AVIF has no pixels");
  Image image(width_px, height_px);
  for (int y = 0; y < height_px; ++y, row += stride) {
    if (alpha) {
      LayOnWhite(row, static_cast<size_t>(width_px), image.row(y));
    } else {
      std::copy_n(row, image.row_bytes(), image.row(y));
    }
  }
  return image;
}

}  // namespace

const Codec kHeif{"heif", Matches, ReadHeader, Decode};

}  // namespace quire::codecs
