#include "backend/cpu/head_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace quire::cpu {

HeadAttention::HeadAttention(const Products& products, int64_t keys, int64_t dim, int64_t key_block)
    : products_(products),
      keys_(keys),
      dim_(dim),
      key_block_(std::min(keys, key_block)),
      key_bytes_(Blocks(key_block_, kPanel) * products.PanelBytes(dim)),
      value_bytes_(Blocks(dim, kPanel) * products.PanelBytes(key_block_)) {}

int64_t HeadAttention::KeysOf(int64_t block) const {
  return std::min(key_block_, keys_ - block * key_block_);
}

void HeadAttention::Pack(const float* keys, const float* values, int64_t stride, void* memory) const {
  auto* to = static_cast<char*>(memory);
  for (int64_t b = 0; b < blocks(); ++b, to += key_bytes_ + value_bytes_) {
    const int64_t first = b * key_block_, count = KeysOf(b);
    for (int64_t j = 0; j < count; j += kPanel)
      products_.Pack(keys + (first + j) * stride, DType::kF32, stride, std::min(kPanel, count - j), dim_,
                     to + j / kPanel * products_.PanelBytes(dim_));
    for (int64_t j = 0; j < dim_; j += kPanel)
      products_.PackTransposed(values + first * stride + j, stride, std::min(kPanel, dim_ - j), count,
                               to + key_bytes_ + j / kPanel * products_.PanelBytes(count));
  }
}

void HeadAttention::Attend(const void* memory, const Operand& queries, int64_t rows, const Logits& logits, float* out,
                           int64_t out_stride) const {
  const bool rounded = products_.operand() == DType::kBf16;
  const int64_t padded_rows = products_.PaddedRows(rows), width = RoundUp(dim_, kPanel);
  const int64_t stride = RoundUp(key_block_, kPanel);
  auto* s = ThreadScratch<float>(Scratch::kTile, padded_rows * stride);
  auto* p = rounded ? ThreadScratch<Bf16>(Scratch::kRounded, padded_rows * stride) : nullptr;
  // Largest logit so far, and sum and mix relative to it.
  float largest[Products::kMaxRows], sum[Products::kMaxRows], keep[Products::kMaxRows], add[Products::kMaxRows];
  auto* mix = ThreadScratch<float>(Scratch::kMix, 2 * padded_rows * width);
  float* block_mix = mix + padded_rows * width;
  std::fill_n(mix, rows * width, 0.0f);
  std::fill_n(largest, rows, -std::numeric_limits<float>::infinity());
  std::fill_n(sum, rows, 0.0f);

  const auto* keys = static_cast<const char*>(memory);
  for (int64_t b = 0; b < blocks(); ++b, keys += key_bytes_ + value_bytes_) {
    const int64_t count = KeysOf(b), row_width = RoundUp(count, kPanel), depth = products_.PaddedDepth(count);
    products_.Multiply(queries, rows, keys, count, dim_, s);
    for (int64_t r = 0; r < rows; ++r) {
      float* row = s + r * row_width;
      int64_t seen = count;
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
      std::fill(row + seen, row + count, 0.0f);
      if (rounded) products_.StageRow(row, count, p + r * depth);
    }
    const Operand probabilities = rounded ? Operand{p, depth} : Operand{s, row_width};
    products_.Multiply(probabilities, rows, keys + key_bytes_, dim_, count, block_mix);
    for (int64_t r = 0; r < rows; ++r) MergeRow(keep[r], block_mix + r * width, add[r], dim_, mix + r * width);
  }
  for (int64_t r = 0; r < rows; ++r) ScaleRow(mix + r * width, 1.0f / sum[r], dim_, out + r * out_stride);
}

}  // namespace quire::cpu
