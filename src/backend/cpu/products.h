// Products of many rows with packed weights: class kPrompt and vision.
//
// The right side lies in panels of kPanel outputs (kernels.h). In float32 the panels are [k, kPanel] and the kernels
// are our own: oneDNN's float32 products gave other bits for other row counts on AVX2 (gemm:jit). In bf16 they are [k /
// 2, kPanel, 2], k padded to kDepthStep, which is oneDNN's BA16a64b2a, and oneDNN multiplies: bit-equal for row counts
// 1 to 128 where measured; only a few padded row counts are used at all.
#pragma once

#include <cstdint>

#include "backend/cpu/kernels.h"
#include "tensor/dtype.h"

namespace quire::cpu {

// Memory of the calling thread that lasts until the thread asks for the same slot again: `bytes` at least, aligned to
// 64, not initialised.
enum class Scratch { kPanels, kTile, kRows, kMix, kRounded, kOneDnn, kCount };
void* ThreadScratch(Scratch slot, int64_t bytes);
template <typename T>
T* ThreadScratch(Scratch slot, int64_t count) {
  return static_cast<T*>(ThreadScratch(slot, count * static_cast<int64_t>(sizeof(T))));
}

// The left side as Multiply reads it: rows of the operand type.
struct Operand {
  const void* data;
  int64_t stride;  // elements from row to row
};

// Pieces of `size` that hold `count`, and what they hold in all.
constexpr int64_t Blocks(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}
constexpr int64_t RoundUp(int64_t count, int64_t size) {
  return Blocks(count, size) * size;
}

class Products {
 public:
  // operand: kF32 or kBf16 (needs Isa::fast_bf16).
  explicit Products(DType operand) : operand_(operand) {}
  DType operand() const { return operand_; }

  // Rows of one call at most; a tile of sums for it has PaddedRows rows.
  static constexpr int64_t kMaxRows = 96;
  // Rows that Multiply may read and write for so many rows.
  int64_t PaddedRows(int64_t rows) const;
  // Elements of an operand's row, and depth of a panel, for k inputs.
  int64_t PaddedDepth(int64_t k) const;
  int64_t PanelBytes(int64_t k) const;  // of one panel

  int64_t operand_bytes() const { return static_cast<int64_t>(SizeOf(operand_)); }

  // Rows of x as an operand: x itself in float32, else rounded into `buffer` [PaddedRows(rows), PaddedDepth(k)].
  Operand Stage(const float* x, int64_t stride, int64_t rows, int64_t k, void* buffer) const;
  // One row of the operand type to `out` [PaddedDepth(k)].
  void StageRow(const float* x, int64_t k, void* out) const;
  // Row `first` of the operand and those after it.
  Operand From(const Operand& a, int64_t first) const;

  // Weight rows w [n, k] (n <= kPanel, rows `stride` elements apart) to a panel.
  void Pack(const void* w, DType type, int64_t stride, int64_t n, int64_t k, void* panel) const;
  // The same from the transposed form w [k, n], float32.
  void PackTransposed(const float* w, int64_t stride, int64_t n, int64_t k, void* panel) const;

  // c[r, j] = a [rows, k] times panels that follow each other, j < columns; rows <= kMaxRows. Rows of c are as long as
  // the panels are wide together, and what lies behind `columns` in them is undefined.
  void Multiply(const Operand& a, int64_t rows, const void* panels, int64_t columns, int64_t k, float* c) const;

 private:
  DType operand_;
};

}  // namespace quire::cpu
