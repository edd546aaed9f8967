// Products and convolutions.
#include <algorithm>

#include "backend/cpu/backend.h"

namespace quire::cpu {
void CpuBackend::FinishTile(const Finish& finish, const float* tile, int64_t stride, int64_t first_row, int64_t rows,
                            int64_t first_column, int64_t columns) const {
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = (first_row + r) * finish.width + first_column;
    FinishRow(tile + r * stride, finish.bias ? finish.bias + first_column : nullptr, finish.act,
              finish.residual ? finish.residual + at : nullptr, columns, finish.out + at);
  }
}

// Rows of class kGenerated: every thread takes slices of outputs and reads their weights once for all rows.
void CpuBackend::MultiplyFew(Context& c, const float* x, int64_t rows, const CpuWeight& w, const Finish& finish) {
  const Arena::Scope scope(c.arena);
  const View addresses = c.arena.Take(DType::kI64, {rows});
  auto* row = static_cast<const float**>(addresses.data);
  for (int64_t r = 0; r < rows; ++r) row[r] = x + r * w.k();
  pool().For(static_cast<int64_t>(w.few.size()), [&](int64_t i) {
    const Slice& slice = w.few[i];
    auto* tile = ThreadScratch<float>(Scratch::kTile, rows * slice.rows);
    DotRows(slice.data, slice.dtype, slice.rows, w.k(), row, rows, tile, slice.rows);
    FinishTile(finish, tile, slice.rows, 0, rows, slice.first, slice.rows);
  });
}

CpuBackend::Rows CpuBackend::TakeRows(Context& c, int64_t rows, int64_t k) const {
  const int64_t stride = products_.PaddedDepth(k);
  const View view = c.arena.Take(products_.operand(), {products_.PaddedRows(rows), stride});
  return {view.data, stride, products_.operand_bytes()};
}

Operand CpuBackend::StageAll(Context& c, const float* x, int64_t rows, int64_t k) {
  if (products_.operand() == DType::kF32) return {x, k};
  const Rows staged = TakeRows(c, rows, k);
  ForRows(rows, k, [&](int64_t r) { products_.StageRow(x + r * k, k, staged.at(r)); });
  return staged.operand();
}

const void* CpuBackend::PanelsOf(const CpuWeight& w, int64_t first, int64_t columns) const {
  const int64_t elements = products_.PaddedDepth(w.k()) * kPanel, count = Blocks(columns, kPanel);
  const int64_t skip = first / kPanel * elements;
  if (w.panel_type == products_.operand())
    return static_cast<const char*>(w.panels.data()) + skip * products_.operand_bytes();
  auto* wide = ThreadScratch<float>(Scratch::kPanels, count * elements);
  WidenRow(static_cast<const Bf16*>(w.panels.data()) + skip, DType::kBf16, count * elements, wide);
  return wide;
}

const void* CpuBackend::PanelsOf(const Slice& slice, int64_t k) const {
  auto* panels = ThreadScratch<char>(Scratch::kPanels, Blocks(slice.rows, kPanel) * products_.PanelBytes(k));
  for (int64_t j = 0; j < slice.rows; j += kPanel) {
    const auto skip = static_cast<size_t>(j * k) * SizeOf(slice.dtype);
    products_.Pack(static_cast<const char*>(slice.data) + skip, slice.dtype, k, std::min(kPanel, slice.rows - j), k,
                   panels + j / kPanel * products_.PanelBytes(k));
  }
  return panels;
}

// Rows of class kPrompt and of vision: jobs are slices of outputs by chunks of rows. The cut of the rows changes no
// result, so it may depend on the number of threads.
void CpuBackend::MultiplyMany(const Operand& a, int64_t rows, const CpuWeight& w, const Finish& finish) {
  constexpr int64_t kPackedPanels = 2, kMinChunk = 2 * Products::kMaxRows;
  const bool packed = w.panels.size() > 0;
  const int64_t slices = packed ? Blocks(w.n(), kPackedPanels * kPanel) : static_cast<int64_t>(w.many.size());
  const int64_t wanted = std::clamp<int64_t>(Blocks(4 * pool().threads(), slices), 1, Blocks(rows, kMinChunk));
  const int64_t chunk = Blocks(Blocks(rows, wanted), Products::kMaxRows) * Products::kMaxRows;
  const int64_t chunks = Blocks(rows, chunk);
  pool().For(slices * chunks, [&](int64_t job) {
    const int64_t s = job / chunks, first_row = job % chunks * chunk, last_row = std::min(rows, first_row + chunk);
    const int64_t first = packed ? s * kPackedPanels * kPanel : w.many[s].first;
    const int64_t columns = packed ? std::min(kPackedPanels * kPanel, w.n() - first) : w.many[s].rows;
    const int64_t width = RoundUp(columns, kPanel);
    const void* panels = packed ? PanelsOf(w, first, columns) : PanelsOf(w.many[s], w.k());
    auto* tile = ThreadScratch<float>(Scratch::kTile, Products::kMaxRows * width);
    for (int64_t r = first_row; r < last_row; r += Products::kMaxRows) {
      const int64_t block = std::min(Products::kMaxRows, last_row - r);
      products_.Multiply(products_.From(a, r), block, panels, columns, w.k(), tile);
      FinishTile(finish, tile, width, r, block, first, columns);
    }
  });
}

void CpuBackend::MultiplyMany(Context& c, const float* x, int64_t rows, const CpuWeight& w, const Finish& finish) {
  const Arena::Scope scope(c.arena);
  MultiplyMany(StageAll(c, x, rows, w.k()), rows, w, finish);
}

void CpuBackend::Linear(Context& c, const View& x, const Weight& weight, const Weight* bias, Activation act,
                        const View& residual, const View& out, int64_t prompt_rows) {
  const CpuWeight& w = Cast(weight);
  const int64_t rows = x.rows(), k = w.k(), n = w.n();
  QUIRE_CHECK(w.panels.size() > 0 || !w.few.empty());  // a role for products
  QUIRE_CHECK_EQ(x.width(), k);
  QUIRE_CHECK_EQ(out.width(), n);
  QUIRE_CHECK_EQ(out.rows(), rows);
  // The router is small, and in float32 for all rows; a vision tower has prompt rows only.
  int64_t many = std::min(prompt_rows, rows);
  if (w.role() == Role::kRouter) many = 0;
  if (w.role() == Role::kVision) many = rows;
  const auto finish = [&](int64_t first) {
    return Finish{Values(bias), act, residual.empty() ? nullptr : residual.as<float>() + first * n,
                  out.as<float>() + first * n, n};
  };
  if (many > 0) MultiplyMany(c, x.as<float>(), many, w, finish(0));
  if (many < rows) MultiplyFew(c, x.as<float>() + many * k, rows - many, w, finish(many));
}

void CpuBackend::Conv2d(Context& c, const View& x, const Weight& weight, const Weight* bias, int kernel, int stride,
                        int pad, const View& out) {
  const CpuWeight& w = Cast(weight);
  const int64_t height = x.shape[1], width = x.shape[2], in = x.shape[3], k = w.k();
  const int64_t out_height = out.shape[1], out_width = out.shape[2];
  QUIRE_CHECK_EQ(k, in * kernel * kernel);
  QUIRE_CHECK_EQ(out.shape[3], w.n());
  // Patches of some output lines at a time: 37 MB of them in the neck's 3x3 convolution otherwise.
  constexpr int64_t kPatches = 1024;
  const int64_t lines = x.shape[0] * out_height, step = std::max<int64_t>(1, kPatches / out_width);
  const Arena::Scope scope(c.arena);
  const Rows patches = TakeRows(c, step * out_width, k);
  for (int64_t first = 0; first < lines; first += step) {
    const int64_t rows = std::min(step, lines - first) * out_width;
    ForRows(rows, k, [&](int64_t r) {
      const int64_t line = first + r / out_width, b = line / out_height;
      const int64_t top = line % out_height * stride - pad, left = r % out_width * stride - pad;
      auto* patch = ThreadScratch<float>(Scratch::kRows, k);
      for (int64_t i = 0; i < kernel * kernel; ++i) {
        const int64_t y = top + i / kernel, x0 = left + i % kernel;
        if (y < 0 || y >= height || x0 < 0 || x0 >= width)
          std::fill_n(patch + i * in, in, 0.0f);
        else
          std::copy_n(x.as<float>() + ((b * height + y) * width + x0) * in, in, patch + i * in);
      }
      products_.StageRow(patch, k, patches.at(r));
    });
    const Finish finish{Values(bias), Activation::kNone, nullptr, out.as<float>() + first * out_width * w.n(), w.n()};
    MultiplyMany(patches.operand(), rows, w, finish);
  }
}

}  // namespace quire::cpu
