// Attention of many rows over the keys of one head: products through panels, softmax in blocks of keys.
#pragma once

#include <cstdint>
#include <functional>

#include "backend/cpu/products.h"

namespace quire::cpu {

class HeadAttention {
 public:
  // key_block: keys that one step of the softmax takes.
  HeadAttention(const Products& products, int64_t keys, int64_t dim, int64_t key_block);

  int64_t bytes() const { return blocks() * (key_bytes_ + value_bytes_); }  // of packed keys and values
  int64_t KeysOf(int64_t block) const;

  // keys and values: [keys, dim] float32 with rows `stride` elements apart, to panels in `memory`.
  void Pack(const float* keys, const float* values, int64_t stride, void* memory) const;

  // Turns the products of one query and a block's keys, s [KeysOf(block)], into logits, and returns the largest. Keys
  // at the end may be left out: *seen is the number of keys that count; some key of block 0 must.
  using Logits = std::function<float(int64_t row, int64_t block, float* s, int64_t* seen)>;
  // Row r < rows <= Products::kMaxRows of out [dim] = softmax(logits) values.
  void Attend(const void* memory, const Operand& queries, int64_t rows, const Logits& logits, float* out,
              int64_t out_stride) const;

 private:
  int64_t blocks() const { return Blocks(keys_, key_block_); }

  const Products& products_;
  int64_t keys_, dim_, key_block_;
  int64_t key_bytes_, value_bytes_;  // of a block's panels
};

}  // namespace quire::cpu
