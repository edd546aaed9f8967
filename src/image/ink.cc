#include "image/ink.h"

#include <algorithm>

namespace quire {
namespace {

std::vector<InkRun> FindRuns(const std::vector<uint8_t>& contrast, int width_px, int threshold) {
  std::vector<InkRun> runs;
  const int height_px = static_cast<int>(contrast.size()) / width_px;
  for (int y = 0; y < height_px; ++y) {
    const uint8_t* row = contrast.data() + static_cast<size_t>(y) * width_px;
    const auto is_ink = [&](int x) { return x < width_px && row[x] > threshold; };
    for (int x = 0; x < width_px; ++x) {
      if (!is_ink(x)) continue;
      const int begin = x;
      while (is_ink(x)) ++x;
      runs.push_back({y, begin, x, static_cast<int>(runs.size())});
    }
  }
  return runs;
}

// The first run of the piece that run i is known to belong to; shortens the path to it.
int FindRoot(std::vector<InkRun>* runs, int i) {
  while ((*runs)[i].piece != i) i = (*runs)[i].piece = (*runs)[(*runs)[i].piece].piece;
  return i;
}

// Joins runs of neighbouring rows that touch: every run's piece leads to the first run of its piece.
void JoinRuns(std::vector<InkRun>* runs) {
  const int count = static_cast<int>(runs->size());
  for (int above = 0, below = 0; below < count;) {
    InkRun& a = (*runs)[above];
    InkRun& b = (*runs)[below];
    if (a.row < b.row - 1 || (a.row == b.row - 1 && a.end < b.begin)) {
      ++above;
      continue;
    }
    if (a.row == b.row - 1 && a.begin <= b.end) {
      const int root_above = FindRoot(runs, above);
      const int root_below = FindRoot(runs, below);
      (*runs)[std::max(root_above, root_below)].piece = std::min(root_above, root_below);
      if (a.end < b.end) {
        ++above;  // the next run above may touch this one too
        continue;
      }
    }
    ++below;
  }
}

}  // namespace

Ink FindInk(const std::vector<uint8_t>& contrast, int width_px, int threshold) {
  Ink ink{{}, FindRuns(contrast, width_px, threshold)};
  JoinRuns(&ink.runs);
  for (size_t i = 0; i < ink.runs.size(); ++i) {
    InkRun& run = ink.runs[i];
    const RectPx box{run.begin, run.row, run.end - run.begin, 1};
    if (run.piece == static_cast<int>(i)) {
      run.piece = static_cast<int>(ink.pieces.size());
      ink.pieces.push_back({box, box.width_px});
      continue;
    }
    run.piece = ink.runs[run.piece].piece;  // an earlier run, whose number is final
    InkPiece& piece = ink.pieces[run.piece];
    const int right = std::max(piece.box.left_px + piece.box.width_px, run.end);
    piece.box.left_px = std::min(piece.box.left_px, run.begin);
    piece.box.width_px = right - piece.box.left_px;
    piece.box.height_px = run.row + 1 - piece.box.top_px;
    piece.pixels += box.width_px;
  }
  return ink;
}

}  // namespace quire
