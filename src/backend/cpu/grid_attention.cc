#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/cpu/backend.h"
#include "backend/cpu/head_attention.h"

namespace quire::cpu {
namespace {

// Whole key rows of a grid [rows, columns], so many that they fill panels where that is possible.
int64_t KeyRows(int64_t rows, int64_t columns) {
  const int64_t step = kPanel / std::gcd(columns, kPanel);
  return std::min(rows, step * std::max<int64_t>(1, kKeysAtOnce / (step * columns)));
}

// The grid cut into windows, or as one window, and a window's queries cut into tiles.
struct Cut {
  Cut(const Shape& qkv, int window)
      : height(qkv[1]),
        width(qkv[2]),
        side_y(window ? window : height),
        side_x(window ? window : width),
        across(Blocks(width, side_x)),
        windows(Blocks(height, side_y) * across),
        lines(std::clamp<int64_t>(Products::kMaxRows / side_x, 1, side_y)),
        columns(std::min(side_x, Products::kMaxRows)),
        tiles_across(Blocks(side_x, columns)),
        tiles(Blocks(side_y, lines) * tiles_across) {}
  int64_t height, width;        // of the grid
  int64_t side_y, side_x;       // of a window
  int64_t across, windows;      // windows in a row of them, and in all
  int64_t lines, columns;       // of a tile: whole lines of a window, or part of one line
  int64_t tiles_across, tiles;  // of a window
};

class GridAttention {
 public:
  GridAttention(Context& c, const Products& products, const View& qkv, const Weight* pad,
                const RelativePositions& relative, int heads, const Cut& cut, const View& out)
      : products_(products),
        cut_(cut),
        qkv_(qkv.as<float>()),
        pad_(Values(pad)),
        out_(out.as<float>()),
        channels_(out.width()),
        d_(out.width() / heads),
        scale_(1.0f / std::sqrt(static_cast<float>(d_))),
        key_rows_(KeyRows(cut.side_y, cut.side_x)),
        attention_(products, cut.side_y * cut.side_x, d_, key_rows_ * cut.side_x),
        terms_(2 * cut.side_y - 1 + 2 * cut.side_x - 1) {
    QUIRE_CHECK_EQ(relative.rows->n(), 2 * cut.side_y - 1);
    QUIRE_CHECK_EQ(relative.columns->n(), 2 * cut.side_x - 1);
    PackTables(c, relative);
  }

  const HeadAttention& attention() const { return attention_; }

  void PackKeys(int64_t b, int64_t window, int64_t head, void* memory) const {
    const int64_t keys = cut_.side_y * cut_.side_x;
    auto* both = ThreadScratch<float>(Scratch::kRows, keys * 2 * d_);
    for (int64_t j = 0; j < keys; ++j) {
      const float* row = Token(b, window, j / cut_.side_x, j % cut_.side_x) + head * d_;
      std::copy_n(row + channels_, d_, both + j * 2 * d_);
      std::copy_n(row + 2 * channels_, d_, both + j * 2 * d_ + d_);
    }
    attention_.Pack(both, both + d_, 2 * d_, memory);
  }

  void Attend(int64_t b, int64_t window, int64_t head, int64_t tile, const void* memory) const {
    const int64_t y0 = tile / cut_.tiles_across * cut_.lines, x0 = tile % cut_.tiles_across * cut_.columns;
    const int64_t top = window / cut_.across * cut_.side_y, left = window % cut_.across * cut_.side_x;
    const int64_t lines = std::min({cut_.lines, cut_.side_y - y0, cut_.height - top - y0});
    const int64_t columns = std::min({cut_.columns, cut_.side_x - x0, cut_.width - left - x0});
    if (lines <= 0 || columns <= 0) return;  // all of it lies in the extension
    const int64_t rows = lines * columns, padded_rows = products_.PaddedRows(rows);
    const int64_t depth = products_.PaddedDepth(d_), terms_width = RoundUp(terms_, kPanel);

    auto* q = ThreadScratch<float>(Scratch::kRows, padded_rows * (depth + terms_width + d_));
    float* terms = q + padded_rows * depth;
    float* mixed = terms + padded_rows * terms_width;
    for (int64_t r = 0; r < rows; ++r)
      products_.StageRow(Token(b, window, y0 + r / columns, x0 + r % columns) + head * d_, d_,
                         reinterpret_cast<char*>(q) + r * depth * products_.operand_bytes());
    const Operand queries{q, depth};
    products_.Multiply(queries, rows, tables_, terms_, d_, terms);
    const auto logits = [&](int64_t r, int64_t block, float* s, int64_t*) {
      const float* by_row = terms + r * terms_width + cut_.side_y - 1 - (y0 + r / columns);
      const float* by_column = terms + r * terms_width + 2 * cut_.side_y - 1 + cut_.side_x - 1 - (x0 + r % columns);
      return ScaleMaxGrid(scale_, by_row + block * key_rows_, by_column, attention_.KeysOf(block) / cut_.side_x,
                          cut_.side_x, s);
    };
    attention_.Attend(memory, queries, rows, logits, mixed, d_);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t y = top + y0 + r / columns, x = left + x0 + r % columns;
      std::copy_n(mixed + r * d_, d_, out_ + ((b * cut_.height + y) * cut_.width + x) * channels_ + head * d_);
    }
  }

 private:
  // The qkv row of the token at (y, x) of a window.
  const float* Token(int64_t b, int64_t window, int64_t y, int64_t x) const {
    const int64_t grid_y = window / cut_.across * cut_.side_y + y, grid_x = window % cut_.across * cut_.side_x + x;
    if (grid_y >= cut_.height || grid_x >= cut_.width) return pad_;
    return qkv_ + ((b * cut_.height + grid_y) * cut_.width + grid_x) * 3 * channels_;
  }

  // Both tables in reverse, so that their products with q run with the keys: the term of query y and key ky is number
  // ky + side - 1 - y.
  void PackTables(Context& c, const RelativePositions& relative) {
    auto* reversed = c.arena.Take(DType::kF32, {terms_, d_}).as<float>();
    float* to = reversed;
    for (const Weight* table : {relative.rows.get(), relative.columns.get()})
      for (int64_t i = table->n(); i-- > 0; to += d_) std::copy_n(Values(table) + i * d_, d_, to);
    auto* tables = c.arena.Take(DType::kU8, {Blocks(terms_, kPanel), products_.PanelBytes(d_)}).as<uint8_t>();
    for (int64_t j = 0; j < terms_; j += kPanel)
      products_.Pack(reversed + j * d_, DType::kF32, d_, std::min(kPanel, terms_ - j), d_,
                     tables + j / kPanel * products_.PanelBytes(d_));
    tables_ = tables;
  }

  const Products& products_;
  const Cut& cut_;
  const float *qkv_, *pad_;
  float* out_;
  int64_t channels_, d_;
  float scale_;
  int64_t key_rows_;  // of a softmax block
  HeadAttention attention_;
  int64_t terms_;  // rows of both tables
  const void* tables_;
};

}  // namespace

void CpuBackend::GridAttention(Context& c, const View& qkv, const Weight* pad, const RelativePositions& relative,
                               int heads, int window, const View& out) {
  const Arena::Scope scope(c.arena);
  const Cut cut(qkv.shape, window);
  const cpu::GridAttention grid(c, products_, qkv, pad, relative, heads, cut, out);
  const int64_t batch = qkv.shape[0], head_bytes = RoundUp(grid.attention().bytes(), 64);
  if (window) {  // a window's keys and values stay in the thread's cache
    pool().For(batch * cut.windows * heads, [&](int64_t job) {
      const int64_t head = job % heads, w = job / heads % cut.windows, b = job / heads / cut.windows;
      void* memory = ThreadScratch(Scratch::kPanels, head_bytes);
      grid.PackKeys(b, w, head, memory);
      for (int64_t tile = 0; tile < cut.tiles; ++tile) grid.Attend(b, w, head, tile, memory);
    });
    return;
  }
  auto* memory = c.arena.Take(DType::kU8, {heads, head_bytes}).as<uint8_t>();
  for (int64_t b = 0; b < batch; ++b) {
    pool().For(heads, [&](int64_t head) { grid.PackKeys(b, 0, head, memory + head * head_bytes); });
    pool().For(heads * cut.tiles, [&](int64_t job) {
      grid.Attend(b, 0, job / cut.tiles, job % cut.tiles, memory + job / cut.tiles * head_bytes);
    });
  }
}

}  // namespace quire::cpu
