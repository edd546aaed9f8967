#include "document/blocks.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/ascii.h"
#include "document/tables.h"

namespace quire {
namespace {

constexpr std::array<std::string_view, 9> kNames = {"title",    "sub_title",     "text",          "table", "image",
                                                    "equation", "image_caption", "table_caption", "other"};

}  // namespace

std::string_view Name(BlockKind kind) {
  return kNames[static_cast<size_t>(kind)];
}

std::optional<double> Block::confidence() const {
  if (logprobs.tokens == 0) return {};
  return std::exp(logprobs.mean());
}

BlockBox Frame::Map(const Box& box) const {
  BlockBox mapped;
  const std::array<int, 4> from = {box.x1, box.y1, box.x2, box.y2};
  std::array<int, 4> grid{};
  for (size_t i = 0; i < from.size(); ++i) {
    const bool horizontal = i % 2 == 0;
    const int page_px = horizontal ? page_width_px : page_height_px;
    const int view_at_px = horizontal ? view.x : view.y;
    const double in_view_px = from[i] / 999.0 * (horizontal ? view.width : view.height);
    const double share = std::clamp((view_at_px + in_view_px) / page_px, 0.0, 1.0);
    mapped.px[i] = std::clamp(view_at_px + static_cast<int>(in_view_px), 0, page_px - 1);
    mapped.unit[i] = share;
    grid[i] = static_cast<int>(std::lround(share * 999));
  }
  mapped.grid = {grid[0], grid[1], grid[2], grid[3]};
  return mapped;
}

BlockKind KindOf(const Region& region, Labels labels) {
  if (!region.marked || labels == Labels::kTexts) return BlockKind::kText;
  const auto name = std::ranges::find(kNames, Trim(region.label));
  return name == kNames.end() ? BlockKind::kOther : static_cast<BlockKind>(name - kNames.begin());
}

std::string TextOf(const Region& region, Labels labels) {
  const std::string label(Trim(region.label));
  if (labels == Labels::kTexts && region.marked) return region.content.empty() ? label : label + "\n" + region.content;
  if (KindOf(region, labels) == BlockKind::kOther && region.content.empty()) return label;
  return region.content;
}

void AppendBlocks(const std::vector<Region>& regions, const Frame& frame, Labels labels, bool joins,
                  std::vector<Block>* blocks) {
  for (const Region& region : regions) {
    Block block;
    block.kind = KindOf(region, labels);
    if (labels == Labels::kKinds) block.label = Trim(region.label);
    block.order = static_cast<int>(blocks->size());
    block.continues = (&region == &regions.front() && joins) || (labels == Labels::kTexts && region.marked);
    for (const Box& box : region.boxes) block.boxes.push_back(frame.Map(box));
    block.content = TextOf(region, labels);
    block.logprobs = region.logprobs;
    block.warnings = region.warnings;
    std::ranges::move(CheckTables(block.content), std::back_inserter(block.warnings));
    blocks->push_back(std::move(block));
  }
}

}  // namespace quire
