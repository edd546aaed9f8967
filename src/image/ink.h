// Connected pieces of ink on a page.
#pragma once

#include <cstdint>
#include <vector>

#include "image/image.h"

namespace quire {

// Pixels that touch, also at corners: a letter, a rule, the frame of a table, a speck.
struct InkPiece {
  RectPx box;
  int pixels = 0;
};

// A horizontal run of ink: columns [begin, end) of a row.
struct InkRun {
  int row, begin, end;
  int piece;  // index into Ink::pieces
};

struct Ink {
  std::vector<InkPiece> pieces;
  std::vector<InkRun> runs;  // by row, then by column
};

// What differs from the paper by more than threshold. contrast: of every pixel, [height, width].
Ink FindInk(const std::vector<uint8_t>& contrast, int width_px, int threshold);

}  // namespace quire
