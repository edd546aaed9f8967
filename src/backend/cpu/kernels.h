// Vector kernels, each compiled for several instruction sets and chosen at run time. No kernel's result for a row
// depends on the number of rows or on the other rows.
#pragma once

#include <cstdint>

#include "backend/blocks.h"
#include "tensor/dtype.h"

namespace quire::cpu {

// Columns of a panel: a product's right side [k, n] is cut into panels [k, kPanel], each dense, the last padded.
inline constexpr int64_t kPanel = 64;

// ---- panel_kernels.cc ----
// c[r, j] (+)= sum over i of a[r, i] panel[i, j] for r < rows, j < columns <= kPanel, each sum one chain in ascending
// i. With add, the chain goes on from what c holds. May write c up to kPanel columns.
void MultiplyPanel(const float* a, int64_t a_stride, int64_t rows, const float* panel, int64_t k, int64_t columns,
                   bool add, float* c, int64_t c_stride);
void MultiplyPanel(const float* a, int64_t a_stride, int64_t rows, const Bf16* panel, int64_t k, int64_t columns,
                   bool add, float* c, int64_t c_stride);
// panel[i, j] = w[j, i] for i < k, j < n <= kPanel, in float32; 0 for the other j.
void PackPanel(const void* w, DType type, int64_t stride, int64_t n, int64_t k, float* panel);
// The same for bf16 weights and a panel of pairs, [k / 2, kPanel, 2]; k even.
void PackPairs(const Bf16* w, int64_t stride, int64_t n, int64_t k, Bf16* panel);

// ---- dot_kernels.cc ----
// out[r, j] = w[j] . x[r] for n weight rows of k elements (float32, bf16 or f16) and m rows given by their addresses.
// Each weight row is read from memory once.
void DotRows(const void* w, DType type, int64_t n, int64_t k, const float* const* x, int64_t m, float* out,
             int64_t out_stride);

// ---- row_kernels.cc ----
void WidenRow(const void* in, DType type, int64_t n, float* out);
void RoundRow(const float* in, int64_t n, Bf16* out);
void LayerNormRow(const float* x, const float* weight, const float* bias, int64_t n, float eps, float* out);
void RmsNormRow(const float* x, const float* weight, int64_t n, float eps, float* out);
// v[i], v[i + half] rotated by the angle of i < half.
void RotateRow(const float* cosines, const float* sines, int64_t half, float* v);
void SiluMulRow(const float* gate, const float* up, int64_t n, float* out);
void AddRow(const float* y, int64_t n, float* x);
// x += (sum over s < count, in order, of weights[s] y[s]) + shared; y [count, n]; shared may be null.
void CombineRow(const float* y, const float* weights, int64_t count, const float* shared, int64_t n, float* x);
// out = act(c + bias) + residual; bias and residual may be null, residual may be out.
void FinishRow(const float* c, const float* bias, Activation act, const float* residual, int64_t n, float* out);

// Softmax in parts. Largest of s *= scale.
float ScaleMax(float scale, int64_t n, float* s);
// s[y, x] = s[y, x] scale + by_row[y] + by_column[x] for the dense grid s [rows, columns]; the largest of them.
float ScaleMaxGrid(float scale, const float* by_row, const float* by_column, int64_t rows, int64_t columns, float* s);
// s = exp(s - largest); the sum of them.
float ExpSum(float largest, int64_t n, float* s);
// mix = mix * keep + add * block.
void MergeRow(float keep, const float* block, float add, int64_t n, float* mix);
void ScaleRow(const float* x, float scale, int64_t n, float* out);

}  // namespace quire::cpu
