#include "backend/cpu/products.h"

#include <algorithm>
#include <array>

#include "backend/cpu/kernels.h"
#include "backend/cpu/onednn.h"
#include "base/check.h"
#include "tensor/tensor.h"

namespace quire::cpu {
namespace {

constexpr int64_t kRowStep = 16, kDepthStep = 32;  // of bf16 products
// Depth of a pass over the panels in float32: 128 kB of a panel, which stays in the second cache.
constexpr int64_t kDepthBlock = 512;

const void* Advance(const void* data, DType type, int64_t elements) {
  return static_cast<const char*>(data) + elements * static_cast<int64_t>(SizeOf(type));
}

}  // namespace

void* ThreadScratch(Scratch slot, int64_t bytes) {
  thread_local std::array<HostBuffer, static_cast<size_t>(Scratch::kCount)> buffers;
  HostBuffer& buffer = buffers[static_cast<size_t>(slot)];
  if (buffer.size() < static_cast<size_t>(bytes)) buffer = HostBuffer(static_cast<size_t>(bytes));
  return buffer.data();
}

int64_t Products::PaddedRows(int64_t rows) const {
  return operand_ == DType::kF32 ? rows : RoundUp(rows, kRowStep);
}
int64_t Products::PaddedDepth(int64_t k) const {
  return operand_ == DType::kF32 ? k : RoundUp(k, kDepthStep);
}
int64_t Products::PanelBytes(int64_t k) const {
  return PaddedDepth(k) * kPanel * operand_bytes();
}

void Products::StageRow(const float* x, int64_t k, void* out) const {
  if (operand_ == DType::kF32) {
    std::copy_n(x, k, static_cast<float*>(out));
    return;
  }
  auto* row = static_cast<Bf16*>(out);
  RoundRow(x, k, row);
  std::fill(row + k, row + PaddedDepth(k), Bf16{0});
}

Operand Products::Stage(const float* x, int64_t stride, int64_t rows, int64_t k, void* buffer) const {
  if (operand_ == DType::kF32) return {x, stride};
  const int64_t depth = PaddedDepth(k);
  for (int64_t r = 0; r < rows; ++r) StageRow(x + r * stride, k, static_cast<Bf16*>(buffer) + r * depth);
  return {buffer, depth};
}

Operand Products::From(const Operand& a, int64_t first) const {
  return {Advance(a.data, operand_, first * a.stride), a.stride};
}

void Products::Pack(const void* w, DType type, int64_t stride, int64_t n, int64_t k, void* panel) const {
  if (operand_ == DType::kF32) return PackPanel(w, type, stride, n, k, static_cast<float*>(panel));
  constexpr int64_t kChunk = 64;  // inputs at a time, so that a chunk of all rows stays in the first cache
  Bf16 chunk[kPanel][kChunk];
  float wide[kChunk];
  for (int64_t first = 0; first < PaddedDepth(k); first += kChunk) {
    const int64_t count = std::min(kChunk, PaddedDepth(k) - first), filled = std::clamp<int64_t>(k - first, 0, count);
    for (int64_t j = 0; j < n; ++j) {
      const void* from = Advance(w, type, j * stride + first);
      if (type == DType::kBf16) {
        std::copy_n(static_cast<const Bf16*>(from), filled, chunk[j]);
      } else {
        WidenRow(from, type, filled, wide);
        RoundRow(wide, filled, chunk[j]);
      }
      std::fill(chunk[j] + filled, chunk[j] + count, Bf16{0});
    }
    PackPairs(chunk[0], kChunk, n, count, static_cast<Bf16*>(panel) + first * kPanel);
  }
}

void Products::PackTransposed(const float* w, int64_t stride, int64_t n, int64_t k, void* panel) const {
  if (operand_ == DType::kF32) {
    auto* out = static_cast<float*>(panel);
    for (int64_t i = 0; i < k; ++i, out += kPanel) std::fill(std::copy_n(w + i * stride, n, out), out + kPanel, 0.0f);
    return;
  }
  auto* out = static_cast<Bf16*>(panel);
  for (int64_t i = 0; i < PaddedDepth(k); ++i)
    for (int64_t j = 0; j < kPanel; ++j)
      out[(i / 2 * kPanel + j) * 2 + i % 2] = i < k && j < n ? ToBf16(w[i * stride + j]) : Bf16{0};
}

void Products::Multiply(const Operand& a, int64_t rows, const void* panels, int64_t columns, int64_t k,
                        float* c) const {
  QUIRE_CHECK_LE(rows, kMaxRows);
  const int64_t width = RoundUp(columns, kPanel);
  if (operand_ == DType::kBf16) {
    QUIRE_CHECK_EQ(a.stride, PaddedDepth(k));
    MultiplyBf16(static_cast<const Bf16*>(a.data), PaddedRows(rows), static_cast<const Bf16*>(panels), width / kPanel,
                 PaddedDepth(k), c);
    return;
  }
  const auto* left = static_cast<const float*>(a.data);
  for (int64_t first = 0; first < k; first += kDepthBlock) {
    const int64_t depth = std::min(kDepthBlock, k - first);
    for (int64_t j = 0; j < columns; j += kPanel)
      MultiplyPanel(left + first, a.stride, rows, static_cast<const float*>(panels) + j * k + first * kPanel, depth,
                    std::min(kPanel, columns - j), first > 0, c + j, width);
  }
}

}  // namespace quire::cpu
