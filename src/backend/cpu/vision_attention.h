// Attention of many rows over one set of keys: softmax in blocks of keys, products through panels.
#pragma once

#include <cstdint>
#include <functional>

#include "backend/cpu/products.h"

namespace quire::cpu {

// Keys and values of one head as panels: block after block of key_block keys, each padded to whole panels.
class HeadPanels {
 public:
  // key_block: keys that one step of the softmax takes; a multiple of kPanel, or all keys.
  HeadPanels(const Products& products, int64_t keys, int64_t dim, int64_t key_block);

  int64_t bytes() const;  // of the memory that Pack fills
  int64_t blocks() const { return (keys_ + key_block_ - 1) / key_block_; }
  int64_t KeysOf(int64_t block) const;
  int64_t padded_block() const { return padded_; }
  int64_t value_panels() const { return value_panels_; }

  // keys and values: [keys, dim] float32 with rows `stride` elements apart.
  void Pack(const float* keys, const float* values, int64_t stride, void* memory) const;

  // Turns logits of one query row and key block, s [KeysOf(block)], into finished ones, and returns the largest.
  // Keys at the end may be left out: *seen is the number of keys that count, at least 1 for block 0.
  using Logits = std::function<float(int64_t row, int64_t block, float* s, int64_t* seen)>;
  // out row r [dim] = softmax(logits) values for rows <= Products::kMaxRows queries.
  void Attend(const void* memory, const Operand& queries, int64_t rows, const Logits& logits, float* out,
              int64_t out_stride) const;

 private:
  int64_t KeyBytes() const;
  const Products& products_;
  int64_t keys_, dim_, key_block_, padded_, value_panels_;
};

}  // namespace quire::cpu
