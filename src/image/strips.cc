#include "image/strips.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "image/ink.h"
#include "image/paper.h"

namespace quire {
namespace {

constexpr int kLeastLetterPx = 4;        // lower pieces are dots, rules and specks
constexpr int kLeastPiecePixels = 3;     // fewer are noise, not ink
constexpr double kEmsOfLetter = 2;       // x-heights are 0.46 to 0.55 em
constexpr double kMostEmsOfLetter = 3;   // higher pieces are pictures and frames
constexpr double kMarginEms = 1;         // of paper kept around what is on the page
constexpr double kTightPitchEms = 1.25;  // of lines without gaps between them
constexpr double kOverlapEms = 1.5;      // a line, repeated when a cut goes through text
constexpr double kEmError = 0.1;         // of the estimate
constexpr double kReach = 0.25;          // how far a strip may be from its even share for the sake of a better cut
constexpr double kSameGap = 0.7;         // gaps are alike down to this share of the widest
constexpr double kBlockGap = 1.5;        // a gap this much wider than usual parts blocks

int Median(std::vector<int>* values) {
  if (values->empty()) return 0;
  const auto middle = values->begin() + static_cast<std::ptrdiff_t>(values->size() / 2);
  std::nth_element(values->begin(), middle, values->end());
  return *middle;
}

// The em of the text among pieces whose upper edge is in rows [top, bottom); 0: no text. Pieces are ordered by that
// edge.
double TextHeight(const std::vector<InkPiece>& pieces, int top, int bottom) {
  auto piece = std::ranges::lower_bound(pieces, top, {}, [](const InkPiece& p) { return p.box.top_px; });
  std::vector<int> heights;
  for (; piece != pieces.end() && piece->box.top_px < bottom; ++piece)
    if (piece->box.height_px >= kLeastLetterPx) heights.push_back(piece->box.height_px);
  const int first = Median(&heights);
  std::erase_if(heights, [first](int height) { return height * 2 < first; });  // dots, commas, hyphens
  return kEmsOfLetter * Median(&heights);
}

// The contrast of the strongest ink on the page, passed by few pixels.
int StrongestContrast(const std::vector<uint8_t>& contrast) {
  constexpr double kPassed = 0.005;  // share of all pixels
  std::array<size_t, 256> counts{};
  for (uint8_t level : contrast) ++counts[level];
  int strongest = 255;
  for (size_t seen = counts[255];
       strongest > 0 && static_cast<double>(seen) < kPassed * static_cast<double>(contrast.size());)
    seen += counts[--strongest];
  return strongest;
}

// A dark border that a scanner left: it lies at an edge of the page and spans most of it.
bool IsBorder(const RectPx& box, const Image& page) {
  const bool at_side = box.left_px == 0 || box.left_px + box.width_px == page.width_px;
  const bool at_end = box.top_px == 0 || box.top_px + box.height_px == page.height_px;
  return (at_side && box.height_px * 2 > page.height_px) || (at_end && box.width_px * 2 > page.width_px);
}

// All ink on the page; noise and borders are left as pieces of no pixels.
Ink FindPageInk(const std::vector<uint8_t>& contrast, const Image& page) {
  Ink ink = FindInk(contrast, page.width_px, kInkContrast);
  for (InkPiece& piece : ink.pieces)
    if (piece.pixels < kLeastPiecePixels || IsBorder(piece.box, page)) piece.pixels = 0;
  return ink;
}

// The smallest rectangle around all ink, margin_px wider, inside the page; empty when there is none.
RectPx Around(const Ink& ink, int margin_px, const Image& page) {
  int left = page.width_px, top = page.height_px, right = 0, bottom = 0;
  for (const auto& [box, pixels] : ink.pieces) {
    if (pixels == 0) continue;
    left = std::min(left, box.left_px);
    top = std::min(top, box.top_px);
    right = std::max(right, box.left_px + box.width_px);
    bottom = std::max(bottom, box.top_px + box.height_px);
  }
  if (right == 0) return {};
  left = std::max(left - margin_px, 0);
  top = std::max(top - margin_px, 0);
  return {left, top, std::min(right + margin_px, page.width_px) - left,
          std::min(bottom + margin_px, page.height_px) - top};
}

struct Gap {
  int begin, end;  // rows
  int height() const { return end - begin; }
};

// The runs of rows without pixels that have a row in [first, last], whole.
std::vector<Gap> FindGaps(const std::vector<int>& pixels, int first, int last) {
  std::vector<Gap> gaps;
  for (int y = first; y <= last; ++y) {
    if (pixels[y] > 0) continue;
    Gap gap{y, y};
    while (gap.begin > 0 && pixels[gap.begin - 1] == 0) --gap.begin;
    while (gap.end < static_cast<int>(pixels.size()) && pixels[gap.end] == 0) ++gap.end;
    gaps.push_back(gap);
    y = gap.end;
  }
  return gaps;
}

// A page as one column of rows.
struct Rows {
  std::vector<InkPiece> letters;    // by their dark cores, which the grey between small letters does not join
  std::vector<int> ink, text;       // pixels of each row, without noise and borders
  std::vector<double> lines_above;  // of text above row i, i in [0, height]
  RectPx block;                     // around all ink, with a margin
  double em_px = 0;
  int usual_gap_px = 0;  // between lines

  double Lines(int top, int bottom) const { return lines_above[bottom] - lines_above[top]; }
};

// Lines of text above each row: whole numbers in the gaps. A run of rows with text is one line, or as many as fit in it
// when there are no gaps.
std::vector<double> CountLines(const std::vector<int>& text, double em_px) {
  std::vector<double> above{0};
  for (auto row = text.begin(); row != text.end();) {
    const auto end = std::find(row, text.end(), 0);
    const double before = above.back();
    const double rows = static_cast<double>(end - row);
    const double lines = std::max(1.0, std::round(rows / (kTightPitchEms * em_px)));
    for (double i = 1; row != end; ++row, ++i) above.push_back(before + lines * i / rows);
    for (; row != text.end() && *row == 0; ++row) above.push_back(above.back());
  }
  return above;
}

Rows FindRows(const Image& page) {
  const std::vector<uint8_t> contrast = ContrastToPaper(page);
  const int core = std::max(kInkContrast, StrongestContrast(contrast) / 2);
  const Ink ink = FindPageInk(contrast, page);
  Rows rows;
  rows.letters = FindInk(contrast, page.width_px, core).pieces;
  rows.em_px = TextHeight(rows.letters, 0, page.height_px);
  rows.block = Around(ink, static_cast<int>(kMarginEms * rows.em_px), page);

  rows.ink.resize(page.height_px);
  rows.text.resize(page.height_px);
  for (const InkRun& run : ink.runs) {
    const auto& [box, pixels] = ink.pieces[run.piece];
    if (pixels == 0) continue;
    rows.ink[run.row] += run.end - run.begin;
    const bool text = box.height_px >= kLeastLetterPx && box.height_px <= kMostEmsOfLetter * rows.em_px;
    if (text) rows.text[run.row] += run.end - run.begin;
  }
  rows.lines_above = CountLines(rows.text, rows.em_px);

  std::vector<int> gaps;
  for (const Gap& gap : FindGaps(rows.ink, 0, page.height_px - 1))
    if (gap.begin > 0 && gap.end < page.height_px) gaps.push_back(gap.height());
  rows.usual_gap_px = Median(&gaps);
  return rows;
}

struct Cut {
  int row = 0;
  int gap_px = 0;  // rows without ink around it; 0: it goes through ink
  bool through_text = false;
};

// Where to cut in rows [first, last]: in the last of the widest gaps without ink, else of those without text, else
// where there is least text.
Cut FindCut(const Rows& rows, int first, int last) {
  for (const std::vector<int>* pixels : {&rows.ink, &rows.text}) {
    const std::vector<Gap> gaps = FindGaps(*pixels, first, last);
    if (gaps.empty()) continue;
    const int widest = std::ranges::max(gaps, {}, &Gap::height).height();
    const Gap gap =
        *std::find_if(gaps.rbegin(), gaps.rend(), [&](const Gap& g) { return g.height() >= kSameGap * widest; });
    return {std::clamp((gap.begin + gap.end) / 2, first, last), pixels == &rows.ink ? gap.height() : 0};
  }
  const auto least = std::min_element(rows.text.begin() + first, rows.text.begin() + last + 1);
  return {static_cast<int>(least - rows.text.begin()), 0, true};
}

}  // namespace

std::vector<Strip> PlanStrips(const Image& page, const StripLimits& limits) {
  const Rows rows = FindRows(page);
  const double em = rows.em_px;
  const double whole_px = std::max(page.width_px, page.height_px);
  const bool large = em * limits.view_px / whole_px >= limits.min_text_px;
  if (em == 0 || rows.block.width_px == 0 || (large && rows.Lines(0, page.height_px) <= limits.max_lines))
    return {{{0, 0, page.width_px, page.height_px}, em}};

  const RectPx& block = rows.block;
  const int bottom = block.top_px + block.height_px;
  // A higher strip is scaled by its height, and then its text is too small.
  const double max_height = std::max<double>(block.width_px, em * limits.view_px / limits.min_text_px);
  const auto fullness = [&](int from, int to) {
    return std::max(rows.Lines(from, to) / limits.max_lines, (to - from) / max_height);
  };
  // The last row down to which a strip from row `from` is at most so full.
  const auto row_at = [&](int from, double most) {
    int row = from + 1;
    while (row < bottom && fullness(from, row + 1) <= most) ++row;
    return row;
  };

  std::vector<Strip> strips;
  Cut above{block.top_px, page.height_px};
  for (int top = block.top_px; above.row < bottom;) {
    const double rest = fullness(top, bottom);
    const double share = rest / std::ceil(rest);
    const int first = std::max(row_at(top, share * (1 - kReach)), above.row + 1);
    const int last = std::max(row_at(top, std::min(share * (1 + kReach), 1.0)), first);
    const Cut below = rest <= 1 || first >= bottom ? Cut{bottom} : FindCut(rows, first, last);

    Strip strip{{block.left_px, top, block.width_px, below.row - top}, TextHeight(rows.letters, top, below.row)};
    const double scale = limits.view_px / static_cast<double>(std::max(strip.rect.width_px, strip.rect.height_px));
    strip.readable = strip.text_px == 0 || strip.text_px * scale >= limits.min_text_px * (1 - kEmError);
    strip.starts_block = above.gap_px > kBlockGap * rows.usual_gap_px;
    strip.overlaps_previous = top < above.row;
    strips.push_back(strip);

    const int overlap = below.through_text ? static_cast<int>(kOverlapEms * em) : 0;
    top = below.row - std::min(overlap, strip.rect.height_px / 2);
    above = below;
  }
  return strips;
}

}  // namespace quire
