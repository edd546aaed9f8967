// The numbers of a model that decide how a picture is cut into views.
#pragma once

namespace quire {

enum class Architecture { kOcr1, kOcr2 };

// What the page plan needs to know of a model; a plain value. Source: model.md 4.1 to 4.4.
struct Geometry {
  Architecture architecture = Architecture::kOcr2;
  int base_px = 1024;  // side of the global view
  int tile_px = 768;   // side of a tile (V1: 640)
  int min_tiles = 2;
  int max_tiles = 6;   // V1 by option: 9
  int patch_px = 16;   // SAM's patch
  int downsample = 4;  // of the grid of patches, by the two strided convolutions
};

}  // namespace quire
