// Position tables resized to another grid, on the host in float32, once per size.
#pragma once

#include <vector>

namespace quire {

// table [side, side, width] -> [to, to, width]: bicubic (a = -0.5) with antialias, align_corners false, as PyTorch's
// interpolate(mode="bicubic", antialias=True) does it. Source: model.md 3.1, step 2.
std::vector<float> ResizeGrid(const std::vector<float>& table, int side, int to, int width);

// table [rows, width] -> [to, width]: linear along the rows, align_corners false. Source: model.md 3.1, step 4
// (segment-anything get_rel_pos).
std::vector<float> ResizeLinear(const std::vector<float>& table, int rows, int to, int width);

}  // namespace quire
