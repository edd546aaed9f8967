#include "model/view_plan.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

// What differs between the two architectures.
struct Rules {
  std::vector<Mode> plain_modes;  // beside small, base and gundam, whose sizes are the geometry's own
  int most_tiles;                 // that a caller may ask for
  bool newlines;                  // rows of features end in image_newline, tiles are joined to one mosaic
};

const Rules& RulesOf(Architecture architecture) {
  static const Rules kOcr1{{{"tiny", 512}, {"large", 1280}}, 9, true};
  static const Rules kOcr2{{}, 6, false};
  return architecture == Architecture::kOcr1 ? kOcr1 : kOcr2;
}

std::string SizesOf(const Mode& mode) {
  return std::to_string(mode.global_px) + (mode.tile_px > 0 ? "+" + std::to_string(mode.tile_px) : "");
}

// A side of the resized picture: half to even as Python's round, never nothing.
int RoundSide(double side_px) {
  return std::max(1, static_cast<int>(std::nearbyint(side_px)));
}

// Centred on a square (Pillow's ImageOps.pad), or squashed into one no larger than a tile (model.md 4.2, 4.3).
ViewPlan PlanGlobal(SizePx frame, int side_px, bool squash) {
  ViewPlan view{ViewKind::kGlobal, side_px, {side_px, side_px}};
  if (squash) return view;
  const double width = frame.width_px;
  const double height = frame.height_px;
  if (width > height) view.resized.height_px = RoundSide(height / width * side_px);
  if (width < height) view.resized.width_px = RoundSide(width / height * side_px);
  view.left_px = static_cast<int>(std::nearbyint((side_px - view.resized.width_px) * 0.5));
  view.top_px = static_cast<int>(std::nearbyint((side_px - view.resized.height_px) * 0.5));
  return view;
}

// Columns and rows of tiles nearest to the picture's aspect (model.md 4.1). Double and == are the published rule: of
// two grids that are equally near, a later (larger) one is taken if the picture fills more than half of it.
std::pair<int, int> ChooseGrid(SizePx frame, int tile_px, int min_tiles, int max_tiles) {
  const double aspect = static_cast<double>(frame.width_px) / frame.height_px;
  const double area = static_cast<double>(frame.width_px) * frame.height_px;
  std::pair<int, int> best{1, 1};
  double best_distance = INFINITY;
  for (int tiles = min_tiles; tiles <= max_tiles; ++tiles) {
    for (int columns = 1; columns <= tiles; ++columns) {
      if (tiles % columns != 0) continue;
      const int rows = tiles / columns;
      const double distance = std::abs(aspect - static_cast<double>(columns) / rows);
      const bool fills = area > 0.5 * tile_px * tile_px * tiles;
      if (distance < best_distance || (distance == best_distance && fills)) best = {columns, rows};
      best_distance = std::min(best_distance, distance);
    }
  }
  return best;
}

// Features of views [first_view, first_view + columns * rows), each side x side. With newlines they are read as one
// mosaic, a newline after each of its rows; without, view after view.
void AddTokens(int first_view, int columns, int rows, int side, bool newlines, std::vector<ImageToken>* tokens) {
  if (!newlines) {
    for (int view = first_view; view < first_view + columns * rows; ++view)
      for (int row = 0; row < side * side; ++row) tokens->push_back({view, row});
    return;
  }
  for (int y = 0; y < rows * side; ++y) {
    for (int x = 0; x < columns * side; ++x)
      tokens->push_back({first_view + y / side * columns + x / side, y % side * side + x % side});
    tokens->push_back({ImageToken::kNewline});
  }
}

}  // namespace

std::vector<Mode> Modes(const Geometry& geometry) {
  std::vector<Mode> modes = RulesOf(geometry.architecture).plain_modes;
  modes.push_back({"small", geometry.tile_px});
  modes.push_back({"base", geometry.base_px});
  std::sort(modes.begin(), modes.end(), [](const Mode& a, const Mode& b) { return a.global_px < b.global_px; });
  modes.push_back({"gundam", geometry.base_px, geometry.tile_px, geometry.max_tiles});
  return modes;
}

Mode FindMode(const Geometry& geometry, std::string_view text, int max_tiles) {
  const std::string wanted(text.empty() ? "gundam" : text);
  std::string allowed;
  for (Mode& mode : Modes(geometry)) {
    allowed += (allowed.empty() ? "" : ", ") + mode.name + " (" + SizesOf(mode) + ")";
    if (wanted != mode.name && wanted != SizesOf(mode)) continue;
    if (max_tiles == 0) return mode;
    if (mode.tile_px == 0)
      throw Error(ErrorKind::kUsage, "mode " + mode.name + " has no tiles, found a largest number of tiles",
                  "max_tiles", "ask for mode gundam, or for no number of tiles");
    const int most = RulesOf(geometry.architecture).most_tiles;
    if (max_tiles < geometry.min_tiles || max_tiles > most)
      throw Error(ErrorKind::kUsage,
                  "wanted " + std::to_string(geometry.min_tiles) + " to " + std::to_string(most) +
                      " tiles at most, found " + std::to_string(max_tiles),
                  "max_tiles");
    mode.max_tiles = max_tiles;
    return mode;
  }
  throw Error(ErrorKind::kUsage, "this model has no mode '" + wanted + "'", "mode", "its modes are " + allowed);
}

int FeaturesPerSide(const Geometry& geometry, int side_px) {
  return (side_px / geometry.patch_px + geometry.downsample - 1) / geometry.downsample;
}

PagePlan PlanPage(const Geometry& geometry, int width_px, int height_px, const Mode& mode) {
  if (width_px < 1 || height_px < 1)
    throw Error(ErrorKind::kBadInput, "wanted a picture of at least 1 x 1 pixels, found " + std::to_string(width_px) +
                                          " x " + std::to_string(height_px));
  const bool newlines = RulesOf(geometry.architecture).newlines;
  PagePlan plan;
  plan.frame = {width_px, height_px};
  if (mode.tile_px > 0 && std::max(width_px, height_px) > mode.tile_px) {
    std::tie(plan.columns, plan.rows) = ChooseGrid(plan.frame, mode.tile_px, geometry.min_tiles, mode.max_tiles);
    const SizePx mosaic{plan.columns * mode.tile_px, plan.rows * mode.tile_px};
    for (int top = 0; top < mosaic.height_px; top += mode.tile_px)
      for (int left = 0; left < mosaic.width_px; left += mode.tile_px)
        plan.views.push_back({ViewKind::kTile, mode.tile_px, mosaic, -left, -top});
    AddTokens(0, plan.columns, plan.rows, FeaturesPerSide(geometry, mode.tile_px), newlines, &plan.tokens);
  }
  const int global = static_cast<int>(plan.views.size());
  plan.views.push_back(PlanGlobal(plan.frame, mode.global_px, mode.global_px <= geometry.tile_px));
  AddTokens(global, 1, 1, FeaturesPerSide(geometry, mode.global_px), newlines, &plan.tokens);
  plan.tokens.push_back({ImageToken::kSeparator});
  return plan;
}

}  // namespace quire
