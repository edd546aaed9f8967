// How a picture becomes views and image tokens: a pure function of the model's geometry, the picture's size and the
// mode. The image floor carries the views out, the model lays the tokens out; both only follow the plan.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/geometry.h"

namespace quire {

// Which views a page gets. Made by FindMode, so that it suits the model.
struct Mode {
  std::string name;   // "base"
  int global_px = 0;  // side of the global view
  int tile_px = 0;    // side of a tile; 0: no tiles
  int max_tiles = 0;  // 0: no tiles
};

// The modes of a model (model.md 4.3): V1 tiny, small, base, large, gundam; V2 small, base, gundam.
std::vector<Mode> Modes(const Geometry& geometry);

// A mode by its name or by its sizes ("640", "1024+768"); no text: gundam, with tiles. max_tiles 0: the model's own.
// Throws Error{kUsage} naming the allowed modes or numbers.
Mode FindMode(const Geometry& geometry, std::string_view text, int max_tiles = 0);

struct SizePx {
  int width_px = 0;
  int height_px = 0;
  bool operator==(const SizePx&) const = default;
};

enum class ViewKind { kTile, kGlobal };

// A square the vision tower sees: the whole picture resized (bicubic, aspect not kept unless the size keeps it) and
// laid with its upper left corner at (left_px, top_px) of the view. Tiles have corners at or left of and above the
// view's own, so they cut; padded views have corners inside it, and what the picture does not cover is kPadGrey.
struct ViewPlan {
  ViewKind kind = ViewKind::kGlobal;
  int side_px = 0;
  SizePx resized;
  int left_px = 0;
  int top_px = 0;
};

inline constexpr int kPadGrey = 127;  // of 255, all channels

// What fills one image token's row of the prompt.
struct ImageToken {
  static constexpr int kNewline = -1;    // the model's image_newline vector (V1)
  static constexpr int kSeparator = -2;  // the model's view_seperator vector
  int view = kSeparator;                 // index into PagePlan::views, or one of the above
  int row = 0;                           // of that view's features
  bool operator==(const ImageToken&) const = default;
};

struct PagePlan {
  SizePx frame;  // of the boxes that the model writes: the picture itself
  int columns = 1;
  int rows = 1;                    // 1 x 1: no tiles
  std::vector<ViewPlan> views;     // tiles row-major, then the global view
  std::vector<ImageToken> tokens;  // in the order of the prompt; its size is the number of image tokens
};

// Throws Error{kBadInput} for a picture without pixels. Any other size is good.
PagePlan PlanPage(const Geometry& geometry, int width_px, int height_px, const Mode& mode);

// Features of one view: the grid of patches after the strided convolutions, q x q (model.md 4.4).
int FeaturesPerSide(const Geometry& geometry, int side_px);

}  // namespace quire
