#include "document/page_pixels.h"

#include <span>
#include <utility>
#include <vector>

#include "image/resize.h"

namespace quire {
namespace {

Image Lay(const Image& resized, const ViewPlan& view) {
  return Crop(resized, {-view.left_px, -view.top_px, view.side_px, view.side_px}, kPadGrey);
}

}  // namespace

Image RenderView(const Image& picture, const ViewPlan& view) {
  return Lay(Resize(picture, view.resized.width_px, view.resized.height_px), view);
}

std::shared_ptr<const PagePixels> MakePagePixels(const Image& picture, PagePlan plan) {
  auto page = std::make_shared<PagePixels>();
  // Of what the image tokens follow from: each view, and which of them goes where.
  std::vector<Hash128> hashes;
  SizePx size;
  Image resized;
  for (const ViewPlan& view : plan.views) {
    if (view.resized != size) {  // all tiles are cut from one resized picture
      size = view.resized;
      resized = Resize(picture, size.width_px, size.height_px);
    }
    page->views.push_back(Lay(resized, view).rgb);
    hashes.push_back(ContentHash(std::as_bytes(std::span(page->views.back()))));
  }
  hashes.push_back(ContentHash(std::as_bytes(std::span(plan.tokens))));
  page->key = ContentHash(std::as_bytes(std::span(hashes)));
  page->plan = std::move(plan);
  return page;
}

}  // namespace quire
