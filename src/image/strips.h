// Cutting a page into strips for a model that cannot read small print.
#pragma once

#include <vector>

#include "image/image.h"

namespace quire {

struct StripLimits {
  int view_px = 1024;       // side of the view that a strip is scaled into
  double min_text_px = 20;  // smallest em that the model reads, in the view
  int max_lines = 12;       // of text in one strip: what the model was trained to write at once
};

struct Strip {
  RectPx rect;                     // in the page; boxes of the strip move by its corner
  double text_px = 0;              // estimated em of its text in pixels of the page; 0: no text found
  bool readable = true;            // its text is expected to be large enough in the view
  bool starts_block = true;        // the gap above it is wider than between lines of a paragraph
  bool overlaps_previous = false;  // no row without text was in reach: the last strip's end is repeated here
};

// Strips from top to bottom that together hold everything on an upright page. A page whose text is large and little
// enough is one strip, itself; otherwise strips span the text block and end at rows without ink where there are any, at
// rows without text (through a picture or the frame of a table) else.
//
// Text is what has the size of letters, measured on connected pieces of ink, so pictures, rules and specks do not
// disturb; paper may be of any level. The em is taken as twice the usual height of a piece: 0.9 to 1.1 of the truth for
// mixed case text in the common book faces.
std::vector<Strip> PlanStrips(const Image& page, const StripLimits& limits);

}  // namespace quire
