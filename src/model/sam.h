// SAM's ViT-B with the neck and the two strided convolutions that compress its tokens 16 times.
// Source: model.md 3.1 (sam_vary_sdpa.py of the published code).
#pragma once

#include <map>
#include <vector>

#include "backend/backend.h"
#include "model/config.h"
#include "model/weight_map.h"

namespace quire {

class Sam {
 public:
  // Takes the tensors `model.sam_model.*`. view_sides_px: the sides of views that the model is used with; the position
  // tables are resized for each here.
  Sam(const SamConfig& config, WeightMap& weights, std::span<const int> view_sides_px, Backend& backend);

  // pixels [views, side, side, 3] -> features [views, side / 64, side / 64, out], channels last. The result is taken
  // from c.arena. Throws Error{kUnsupported} for a side that was not named at construction.
  View Forward(Context& c, const View& pixels) const;

  int out_width() const { return config_.out; }

 private:
  struct Convolution {
    WeightPtr weight;
    int kernel, stride, pad;
  };
  View Convolve(Context& c, const Convolution& conv, const View& x) const;

  SamConfig config_;
  Backend& backend_;
  LinearWeights patch_embed_;
  std::vector<VitBlock> blocks_;
  std::vector<RelativePositions> window_relative_;  // of each windowed block (none at a global one's place)
  // By side of the grid of patches:
  std::map<int64_t, WeightPtr> positions_;                           // [grid, grid, width]
  std::map<int64_t, std::vector<RelativePositions>> grid_relative_;  // of each global block (none at a windowed one's)
  Convolution neck1_, neck2_, down2_, down3_;
  LayerNormWeights neck1_norm_, neck2_norm_;
};

}  // namespace quire
