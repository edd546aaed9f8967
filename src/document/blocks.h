// The blocks of a page: what the grounding markup says, in the page's own coordinates.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "document/grounding.h"

namespace quire {

enum class BlockKind {
  kTitle,
  kSubTitle,
  kText,
  kTable,
  kImage,
  kEquation,
  kImageCaption,
  kTableCaption,
  kOther,  // any other label
};

std::string_view Name(BlockKind kind);  // as the models write it: "sub_title"

// What the labels of a task's answer are.
enum class Labels {
  kKinds,  // of the region; an unknown label without content is read as text
  kTexts,  // the read text itself: "OCR this image.", "Locate ..."
};

// One box of a block, three times; order x1, y1, x2, y2.
struct BlockBox {
  Box grid;                      // 0 to 999 of the page
  std::array<int, 4> px{};       // pixels of the page; both corners inside it, so that they count to the box
  std::array<double, 4> unit{};  // 0 to 1 of the page
};

struct Block {
  BlockKind kind = BlockKind::kText;
  std::string label;       // as written; empty for text without a mark and where the label is the text
  int order = 0;           // from 0 on the page
  bool continues = false;  // follows the block before it on the next line, not in a paragraph of its own
  std::vector<BlockBox> boxes;
  std::string content;
  LogProbs logprobs;
  std::vector<std::string> warnings;

  // exp of the mean log-probability of the block's tokens; none when they are not known.
  std::optional<double> confidence() const;
};

struct PixelRect {
  int x = 0, y = 0, width = 0, height = 0;
  bool operator==(const PixelRect&) const = default;
};

// Where the picture that the model saw lies on its page: the whole of it, or a strip.
struct Frame {
  int page_width_px = 0, page_height_px = 0;
  PixelRect view;

  static Frame WholePage(int width_px, int height_px) { return {width_px, height_px, {0, 0, width_px, height_px}}; }
  // Pixels as the published code has them: int(x / 999 * width), then kept inside the page.
  BlockBox Map(const Box& box) const;
};

// kOther for a label that is none of the kinds; kText for a region without a mark and for labels that are texts.
BlockKind KindOf(const Region& region, Labels labels);
// Its content, or its label where that is the text.
std::string TextOf(const Region& region, Labels labels);

// Adds the blocks of one raw text to those of its page. joins: its first block continues the last one there. Tables are
// checked (tables.h).
void AppendBlocks(const std::vector<Region>& regions, const Frame& frame, Labels labels, bool joins,
                  std::vector<Block>* blocks);

}  // namespace quire
