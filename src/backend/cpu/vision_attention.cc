#include "backend/cpu/vision_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "backend/cpu/backend.h"

namespace quire::cpu {
namespace {

constexpr int64_t kKeysAtOnce = 512;  // of a softmax block: 196 kB of logits for 96 queries
constexpr int64_t kQueries = Products::kMaxRows;

int64_t RoundUp(int64_t x, int64_t step) {
  return (x + step - 1) / step * step;
}

}  // namespace

HeadPanels::HeadPanels(const Products& products, int64_t keys, int64_t dim, int64_t key_block)
    : products_(products),
      keys_(keys),
      dim_(dim),
      key_block_(key_block),
      padded_(RoundUp(std::min(keys, key_block), kPanel)),
      value_panels_(RoundUp(dim, kPanel) / kPanel) {}

int64_t HeadPanels::KeysOf(int64_t block) const {
  return std::min(key_block_, keys_ - block * key_block_);
}

int64_t HeadPanels::KeyBytes() const {
  return padded_ / kPanel * products_.PanelElements(dim_) * static_cast<int64_t>(SizeOf(products_.operand()));
}
int64_t HeadPanels::bytes() const {
  const int64_t values = value_panels_ * products_.PanelElements(padded_);
  return blocks() * (KeyBytes() + values * static_cast<int64_t>(SizeOf(products_.operand())));
}

void HeadPanels::Pack(const float* keys, const float* values, int64_t stride, void* memory) const {
  const auto size = static_cast<int64_t>(SizeOf(products_.operand()));
  auto* to = static_cast<char*>(memory);
  for (int64_t b = 0; b < blocks(); ++b) {
    const int64_t first = b * key_block_, count = KeysOf(b);
    for (int64_t j = 0; j < padded_; j += kPanel, to += products_.PanelElements(dim_) * size)
      products_.Pack(keys + (first + j) * stride, DType::kF32, stride, std::clamp<int64_t>(count - j, 0, kPanel), dim_,
                     to);
    for (int64_t j = 0; j < dim_; j += kPanel, to += products_.PanelElements(padded_) * size)
      products_.PackTransposed(values + first * stride + j, stride, std::min(kPanel, dim_ - j), count, padded_, to);
  }
}

void HeadPanels::Attend(const void* memory, const Operand& queries, int64_t rows, const Logits& logits, float* out,
                        int64_t out_stride) const {
  const int64_t value_width = value_panels_ * kPanel, padded_rows = products_.PaddedRows(rows);
  const bool rounded = products_.operand() == DType::kBf16;
  auto* s = ThreadScratch<float>(Scratch::kTile, padded_rows * padded_);
  auto* p = rounded ? ThreadScratch<Bf16>(Scratch::kPanels, padded_rows * padded_) : nullptr;
  auto* mix = ThreadScratch<float>(Scratch::kMix, (padded_rows + rows) * value_width + 4 * rows);
  float* block_mix = mix + rows * value_width;
  float* largest = block_mix + padded_rows * value_width;
  float *sum = largest + rows, *keep = sum + rows, *add = keep + rows;
  std::fill_n(mix, rows * value_width, 0.0f);
  std::fill_n(largest, rows, -std::numeric_limits<float>::infinity());
  std::fill_n(sum, rows, 0.0f);

  const auto* keys = static_cast<const char*>(memory);
  for (int64_t b = 0; b < blocks(); ++b) {
    const char* values = keys + KeyBytes();
    products_.Multiply(queries, rows, keys, padded_ / kPanel, dim_, s);
    for (int64_t r = 0; r < rows; ++r) {
      float* row = s + r * padded_;
      int64_t seen = KeysOf(b);
      const float top = logits(r, b, row, &seen);
      keep[r] = 1;
      add[r] = 0;
      if (seen > 0) {
        const float next = std::max(largest[r], top);
        keep[r] = std::exp(largest[r] - next);
        add[r] = std::exp(top - next);
        sum[r] = sum[r] * keep[r] + ExpSum(top, seen, row) * add[r];
        largest[r] = next;
      }
      std::fill(row + seen, row + padded_, 0.0f);
      if (rounded) RoundRow(row, padded_, p + r * padded_);
    }
    const Operand probabilities{rounded ? static_cast<const void*>(p) : s, padded_};
    products_.Multiply(probabilities, rows, values, value_panels_, padded_, block_mix);
    for (int64_t r = 0; r < rows; ++r)
      MergeRow(keep[r], block_mix + r * value_width, add[r], value_width, mix + r * value_width);
    keys = values + value_panels_ * products_.PanelElements(padded_) * static_cast<int64_t>(SizeOf(products_.operand()));
  }
  for (int64_t r = 0; r < rows; ++r) ScaleRow(mix + r * value_width, 1.0f / sum[r], dim_, out + r * out_stride);
}

namespace {

// Whole key rows of a grid [rows, columns], so many that they fill panels where that is possible.
int64_t KeyRows(int64_t rows, int64_t columns) {
  const int64_t step = kPanel / std::gcd(columns, kPanel);
  const int64_t wanted = step * std::max<int64_t>(1, kKeysAtOnce / (step * columns));
  return std::min(rows, wanted);
}

}  // namespace

// One batch entry at a time: stage 1 packs keys and values of every window and head, stage 2 takes tiles of queries.
void CpuBackend::GridAttention(Context& c, const View& qkv, const Weight* pad,
                               const RelativePositions& relative, int heads, int window, const View& out) {
  const Weight &rel_rows = *relative.rows, &rel_columns = *relative.columns;
  const int64_t height = qkv.shape[1], width = qkv.shape[2], channels = out.width(), d = channels / heads;
  const int64_t side_y = window ? window : height, side_x = window ? window : width;
  const int64_t windows_y = (height + side_y - 1) / side_y, windows_x = (width + side_x - 1) / side_x;
  QUIRE_CHECK_EQ(rel_rows.n(), 2 * side_y - 1);
  QUIRE_CHECK_EQ(rel_columns.n(), 2 * side_x - 1);
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  const int64_t keys = side_y * side_x, key_rows = KeyRows(side_y, side_x), row_width = 3 * channels;
  const HeadPanels head_panels(products_, keys, d, key_rows * side_x);
  const bool cut = windows_y * windows_x > 1 || windows_y * side_y != height || windows_x * side_x != width;
  const int64_t panel_bytes = RoundUp(head_panels.bytes(), 64), jobs = windows_y * windows_x * heads;
  const Arena::Scope scope(c.arena);
  const View panels = c.arena.Take(DType::kU8, {jobs, panel_bytes});

  // Both tables as the right side of one product with q: row y - ky + side - 1 of rel_rows is column of it, then those
  // of rel_columns.
  const int64_t tables = rel_rows.n() + rel_columns.n(), table_panels = (tables + kPanel - 1) / kPanel;
  const int64_t table_elements = products_.PanelElements(d);
  const View table = c.arena.Take(products_.operand(), {table_panels, table_elements});
  {
    const View joined = c.arena.Take(DType::kF32, {tables, d});
    std::copy_n(Values(&rel_rows), rel_rows.n() * d, joined.as<float>());
    std::copy_n(Values(&rel_columns), rel_columns.n() * d, joined.as<float>() + rel_rows.n() * d);
    for (int64_t p = 0; p < table_panels; ++p)
      products_.Pack(joined.as<float>() + p * kPanel * d, DType::kF32, d, std::min(kPanel, tables - p * kPanel), d,
                     static_cast<char*>(table.data) + static_cast<size_t>(p * table_elements) * SizeOf(table.dtype));
  }

  // Tiles of queries: `lines` whole lines of a window, or part of one line.
  const int64_t lines = std::clamp<int64_t>(kQueries / side_x, 1, side_y);
  const int64_t columns = std::min(side_x, kQueries);
  const int64_t tiles_y = (side_y + lines - 1) / lines, tiles_x = (side_x + columns - 1) / columns;

  for (int64_t b = 0; b < qkv.shape[0]; ++b) {
    const float* image = qkv.as<float>() + b * height * width * row_width;
    // Address of the qkv row of the token at (y, x) of window (wy, wx).
    const auto token = [&](int64_t w, int64_t y, int64_t x) {
      const int64_t gy = w / windows_x * side_y + y, gx = w % windows_x * side_x + x;
      return gy < height && gx < width ? image + (gy * width + gx) * row_width : Values(pad);
    };
    pool().For(jobs, [&](int64_t job) {
      const int64_t w = job / heads, head = job % heads;
      void* memory = static_cast<char*>(panels.data) + job * panel_bytes;
      if (!cut) {
        head_panels.Pack(image + channels + head * d, image + 2 * channels + head * d, row_width, memory);
        return;
      }
      auto* both = ThreadScratch<float>(Scratch::kRows, keys * 2 * d);
      for (int64_t j = 0; j < keys; ++j) {
        const float* row = token(w, j / side_x, j % side_x) + channels + head * d;
        std::copy_n(row, d, both + j * 2 * d);
        std::copy_n(row + channels, d, both + j * 2 * d + d);
      }
      head_panels.Pack(both, both + d, 2 * d, memory);
    });

    pool().For(jobs * tiles_y * tiles_x, [&](int64_t job) {
      const int64_t tile = job % (tiles_y * tiles_x), w = job / (tiles_y * tiles_x) / heads;
      const int64_t head = job / (tiles_y * tiles_x) % heads;
      const int64_t y0 = tile / tiles_x * lines, x0 = tile % tiles_x * columns;
      const int64_t grid_y = w / windows_x * side_y, grid_x = w % windows_x * side_x;
      const int64_t tile_rows = std::min({lines, side_y - y0, height - grid_y - y0});
      const int64_t tile_columns = std::min({columns, side_x - x0, width - grid_x - x0});
      if (tile_rows <= 0 || tile_columns <= 0) return;
      const int64_t rows = tile_rows * tile_columns;
      // The tile's queries, dense: as an operand, and its products with the tables.
      const int64_t padded_rows = products_.PaddedRows(rows), depth = products_.PaddedDepth(d);
      const int64_t table_width = table_panels * kPanel;
      auto* q = ThreadScratch<float>(Scratch::kRows, padded_rows * (depth + table_width + d));
      float* biases = q + padded_rows * depth;
      float* mixed = biases + padded_rows * table_width;
      for (int64_t r = 0; r < rows; ++r)
        products_.StageRow(token(w, y0 + r / tile_columns, x0 + r % tile_columns) + head * d, d,
                           products_.operand() == DType::kF32
                               ? static_cast<void*>(q + r * depth)
                               : static_cast<void*>(reinterpret_cast<Bf16*>(q) + r * depth));
      const Operand queries{q, depth};
      products_.Multiply(queries, rows, table.data, table_panels, d, biases);
      // Per row: its relative terms turned round, so that they run with the keys.
      for (int64_t r = 0; r < rows; ++r) {
        float* terms = biases + r * table_width;
        const int64_t y = y0 + r / tile_columns, x = x0 + r % tile_columns;
        std::reverse(terms + y, terms + y + side_y);
        std::reverse(terms + rel_rows.n() + x, terms + rel_rows.n() + x + side_x);
      }
      head_panels.Attend(
          static_cast<char*>(panels.data) + (w * heads + head) * panel_bytes, queries, rows,
          [&](int64_t r, int64_t block, float* s, int64_t*) {
            const float* terms = biases + r * table_width;
            const int64_t y = y0 + r / tile_columns, x = x0 + r % tile_columns;
            return ScaleMaxGrid(scale, terms + y + block * key_rows, terms + rel_rows.n() + x,
                                head_panels.KeysOf(block) / side_x, side_x, s);
          },
          mixed, d);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t y = grid_y + y0 + r / tile_columns, x = grid_x + x0 + r % tile_columns;
        std::copy_n(mixed + r * d, d, out.as<float>() + ((b * height + y) * width + x) * channels + head * d);
      }
    });
  }
}

void CpuBackend::PrefixAttention(Context& c, const View& qkv, int heads, int kv_heads, int prefix, const View& out) {
  const int64_t batch = qkv.shape[0], tokens = qkv.shape[1], width = qkv.shape[2], d = out.width() / heads;
  QUIRE_CHECK_EQ(width, (heads + 2 * kv_heads) * d);
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  const HeadPanels head_panels(products_, tokens, d, kKeysAtOnce);
  const int64_t panel_bytes = RoundUp(head_panels.bytes(), 64), tiles = (tokens + kQueries - 1) / kQueries;
  const Arena::Scope scope(c.arena);
  const View panels = c.arena.Take(DType::kU8, {batch * kv_heads, panel_bytes});
  pool().For(batch * kv_heads, [&](int64_t job) {
    const float* keys = qkv.as<float>() + job / kv_heads * tokens * width + (heads + job % kv_heads) * d;
    head_panels.Pack(keys, keys + kv_heads * d, width, static_cast<char*>(panels.data) + job * panel_bytes);
  });
  pool().For(batch * heads * tiles, [&](int64_t job) {
    const int64_t first = job % tiles * kQueries, head = job / tiles % heads, b = job / tiles / heads;
    const int64_t rows = std::min(kQueries, tokens - first), kv_head = head / (heads / kv_heads);
    void* staged = ThreadScratch(Scratch::kRows, products_.PaddedRows(rows) * products_.PaddedDepth(d) * 4);
    const Operand queries =
        products_.Stage(qkv.as<float>() + (b * tokens + first) * width + head * d, width, rows, d, staged);
    head_panels.Attend(
        static_cast<char*>(panels.data) + (b * kv_heads + kv_head) * panel_bytes, queries, rows,
        [&](int64_t r, int64_t block, float* s, int64_t* seen) {
          const int64_t all = std::max<int64_t>(prefix, first + r + 1);
          *seen = std::clamp<int64_t>(all - block * kKeysAtOnce, 0, *seen);
          return ScaleMax(scale, *seen, s);
        },
        out.as<float>() + (b * tokens + first) * out.width() + head * d, out.width());
  });
}

}  // namespace quire::cpu
