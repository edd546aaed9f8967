#include "document/page_job.h"

#include <algorithm>

#include "base/error.h"
#include "image/paper.h"
#include "image/resize.h"
#include "image/strips.h"

namespace quire {
namespace {

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// By name, or a mode of the view plan by its sizes ("1024+768").
bool IsAllowed(const std::string& mode, const Geometry& geometry, const ModelCard& card) {
  if (card.modes.empty() || std::ranges::count(card.modes, mode)) return true;
  const bool by_size = !mode.empty() && mode[0] >= '0' && mode[0] <= '9';
  return by_size && std::ranges::count(card.modes, FindMode(geometry, mode).name);
}

StripLimits LimitsOf(const Geometry& geometry, const ModelCard& card) {
  StripLimits limits;
  limits.view_px = geometry.base_px;
  if (card.smallest_text_px) limits.min_text_px = *card.smallest_text_px;
  if (card.strip_max_lines) limits.max_lines = *card.strip_max_lines;
  return limits;
}

}  // namespace

int PageJob::image_tokens() const {
  int sum = 0;
  for (const PagePart& part : parts) sum += static_cast<int>(part.plan.tokens.size());
  return sum;
}

PageJob PlanJob(const Image& page, const Geometry& geometry, const ModelCard& card, std::string_view mode,
                int max_tiles) {
  PageJob job;
  job.mode = mode.empty() ? card.default_mode : mode;
  if (!IsAllowed(job.mode, geometry, card))
    throw Error(ErrorKind::kUsage, "this model has no mode \"" + job.mode + "\"", "mode",
                "its modes: " + Joined(card.modes));
  if (!job.in_strips()) {
    const Mode view_mode = FindMode(geometry, job.mode, max_tiles);
    job.parts.push_back(
        {{0, 0, page.width_px, page.height_px}, PlanPage(geometry, page.width_px, page.height_px, view_mode)});
    return job;
  }
  if (!card.smallest_text_px)
    throw Error(ErrorKind::kUsage,
                "mode strips is for models that name a smallest readable text, which this one does not", "mode",
                "its other modes: " + Joined(card.modes));
  if (max_tiles > 0)
    throw Error(ErrorKind::kUsage, "mode strips has no tiles, but a number of tiles was given", "mode",
                "leave it out, or name a mode with tiles: gundam");
  const Mode strip_mode = FindMode(geometry, PageJob::kStripViews);
  const std::vector<Strip> strips = PlanStrips(page, LimitsOf(geometry, card));
  int too_small = 0;
  bool after_white = true;
  for (const Strip& strip : strips) {
    const RectPx& rect = strip.rect;
    const bool last_chance = job.parts.empty() && &strip == &strips.back();
    if (!last_chance && IsBlank(Crop(page, rect))) {  // a model may see text where there is none
      after_white = true;
      continue;
    }
    job.parts.push_back(
        {rect, PlanPage(geometry, rect.width_px, rect.height_px, strip_mode), !after_white && !strip.starts_block});
    after_white = false;
    too_small += !strip.readable;
    if (strip.overlaps_previous)
      job.warnings.push_back("no row without text near " + std::to_string(rect.top_px) +
                             " px: the text there may be read twice");
  }
  if (too_small > 0)
    job.warnings.push_back(std::to_string(too_small) + " of " + std::to_string(job.parts.size()) +
                           " strips hold text smaller than this model reads");
  return job;
}

}  // namespace quire
