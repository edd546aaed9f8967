#include "model/sam.h"

#include <algorithm>

#include "base/error.h"
#include "model/position_tables.h"

namespace quire {

Sam::Sam(const SamConfig& config, WeightMap& weights, std::span<const int> view_sides_px, Backend& backend)
    : config_(config), backend_(backend) {
  const std::string prefix = "model.sam_model.";
  const int width = config.width, head_dim = width / config.heads;
  WeightStore& store = weights.store();

  patch_embed_ = {
      weights.Matrix(Role::kConv, prefix + "patch_embed.proj.weight", {width, 3, config.patch_px, config.patch_px}),
      weights.Vector(prefix + "patch_embed.proj.bias", width)};
  const std::vector<float> positions =
      store.Take(prefix + "pos_embed", {1, config.grid, config.grid, width}).ToFloats();
  for (const int side_px : view_sides_px) {
    const int grid = side_px / config.patch_px;
    positions_[grid] = weights.Table(ResizeGrid(positions, config.grid, grid, width), {grid, grid, width});
  }

  for (int i = 0; i < config.layers; ++i) {
    const std::string block = prefix + "blocks." + std::to_string(i) + ".";
    const bool global = std::ranges::count(config.global_layers, i) > 0;
    blocks_.push_back({
        .norm1 = weights.LayerNorm(block + "norm1", width, config.eps),
        .norm2 = weights.LayerNorm(block + "norm2", width, config.eps),
        .qkv = weights.Linear(Role::kVision, block + "attn.qkv", 3 * width, width, true),
        .proj = weights.Linear(Role::kVision, block + "attn.proj", width, width, true),
        .lin1 = weights.Linear(Role::kVision, block + "mlp.lin1", config.mlp, width, true),
        .lin2 = weights.Linear(Role::kVision, block + "mlp.lin2", width, config.mlp, true),
        .heads = config.heads,
        .activation = Activation::kGelu,
        .window = global ? 0 : config.window,
    });
    const int stored = 2 * (global ? config.grid : config.window) - 1;
    const std::vector<float> rows = store.Take(block + "attn.rel_pos_h", {stored, head_dim}).ToFloats();
    const std::vector<float> columns = store.Take(block + "attn.rel_pos_w", {stored, head_dim}).ToFloats();
    auto resized = [&](int side) {
      const int needed = 2 * side - 1;
      return RelativePositions{weights.Table(ResizeLinear(rows, stored, needed, head_dim), {needed, head_dim}),
                               weights.Table(ResizeLinear(columns, stored, needed, head_dim), {needed, head_dim})};
    };
    window_relative_.push_back(global ? RelativePositions{} : resized(config.window));
    for (const auto& [grid, table] : positions_)
      grid_relative_[grid].push_back(global ? resized(static_cast<int>(grid)) : RelativePositions{});
  }

  auto convolution = [&](const std::string& name, int out, int in, int kernel, int stride) {
    return Convolution{weights.Matrix(Role::kConv, prefix + name + ".weight", {out, in, kernel, kernel}), kernel,
                       stride, kernel / 2};
  };
  neck1_ = convolution("neck.0", config.neck, width, 1, 1);
  neck1_norm_ = weights.LayerNorm(prefix + "neck.1", config.neck, config.eps);
  neck2_ = convolution("neck.2", config.neck, config.neck, 3, 1);
  neck2_norm_ = weights.LayerNorm(prefix + "neck.3", config.neck, config.eps);
  down2_ = convolution("net_2", config.net2, config.neck, 3, 2);
  down3_ = convolution("net_3", config.out, config.net2, 3, 2);
}

View Sam::Convolve(Context& c, const Convolution& conv, const View& x) const {
  auto shrink = [&](int64_t side) { return (side + 2 * conv.pad - conv.kernel) / conv.stride + 1; };
  const View out = c.arena.Take(x.dtype, {x.shape[0], shrink(x.shape[1]), shrink(x.shape[2]), conv.weight->n()});
  backend_.Conv2d(c, x, *conv.weight, nullptr, conv.kernel, conv.stride, conv.pad, out);
  return out;
}

View Sam::Forward(Context& c, const View& pixels) const {
  const int64_t views = pixels.shape[0], grid = pixels.shape[1] / config_.patch_px;
  const auto positions = positions_.find(grid);
  if (positions == positions_.end())
    throw Error(ErrorKind::kUnsupported,
                "no position tables for views of " + std::to_string(pixels.shape[1]) + " pixels");

  const View features = c.arena.Take(pixels.dtype, {views, grid / 4, grid / 4, config_.out});
  const Arena::Scope scope(c.arena);
  const View x = c.arena.Take(pixels.dtype, {views, grid, grid, config_.width});
  backend_.Conv2d(c, pixels, *patch_embed_.weight, patch_embed_.bias.get(), config_.patch_px, config_.patch_px, 0, x);
  backend_.AddRows(c, x, *positions->second);
  const std::vector<RelativePositions>& of_grid = grid_relative_.at(grid);
  for (size_t i = 0; i < blocks_.size(); ++i)
    backend_.Run(c, blocks_[i], blocks_[i].window ? &window_relative_[i] : &of_grid[i], x);

  const View neck1 = Convolve(c, neck1_, x);
  backend_.LayerNorm(c, neck1, neck1_norm_, neck1);  // over the channels of each pixel
  const View neck2 = Convolve(c, neck2_, neck1);
  backend_.LayerNorm(c, neck2, neck2_norm_, neck2);
  backend_.Copy(c, Convolve(c, down3_, Convolve(c, down2_, neck2)), features);
  return features;
}

}  // namespace quire
