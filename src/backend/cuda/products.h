// Matrix products, by row class. x [rows, k] and w [n, k] row-major bf16, k a multiple of 64, all addresses of 16
// bytes; rows of w beyond n are there up to a multiple of 128 and zero. Sums in float32.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "backend/blocks.h"

namespace quire::cuda {

using bf16 = __nv_bfloat16;

// out = act(x w^T + bias) + residual; or, with `up_row`, out[r, j] = silu(x w[j]) (x w[up_row + j]).
struct ProductArgs {
  const bf16* x;
  const bf16* w;
  const float* bias = nullptr;     // [n]
  const bf16* residual = nullptr;  // [rows, n]; may be out
  bf16* out = nullptr;             // [rows, n]
  float* out_float = nullptr;      // in place of out
  int rows = 0, n = 0, k = 0;      // with up_row: n is the number of gates
  int up_row = 0;
  Activation activation = Activation::kNone;
};

// Rows of class kPrompt: tiles of 128 rows, sums in ascending k.
void MultiplyWide(cudaStream_t stream, const ProductArgs& args);
// Rows of class kGenerated: weights are read once and the rows lie on the narrow side of the matrix fragment. Sums over
// up to eight segments of k (SegmentOf), added in ascending order.
void MultiplyNarrow(cudaStream_t stream, const ProductArgs& args);

// As MultiplyWide on sm_90, by wgmma and bulk copies. False: this chip or shape has no such kernel.
bool MultiplyHopper(cudaStream_t stream, const ProductArgs& args);

// (row, slot) pairs by the expert that they chose.
struct ExpertLists {
  int32_t* counts;   // [experts]
  int32_t* offsets;  // [experts + 1], in `pairs`
  int32_t* pairs;    // [rows * top_k]: row * top_k + slot, expert by expert
  int32_t* active;   // [experts + 1]: those with rows, then -1
  int4* tiles;       // of kTileRows pairs: first in `pairs`, how many, expert, 0; then with expert -1
  int tile_count;    // length of tiles: as many as there can be
};
inline constexpr int kTileRows = 128;
constexpr int MostTiles(int pairs, int experts) {
  return pairs / kTileRows + (pairs < experts ? pairs : experts);
}
// ids [rows, top_k].
void SortByExpert(cudaStream_t stream, const int32_t* ids, int rows, int top_k, int experts, const ExpertLists& lists);

// Row i of a product over pairs is pairs[i]. `gathered`: its x is row pairs[i] / top_k, else row i. `scattered`: its
// out is row pairs[i], else row i. Weights of expert e begin at w + e expert_stride.
struct ExpertArgs {
  ProductArgs product;  // rows: pairs
  ExpertLists lists;
  int experts, top_k;
  bool gathered, scattered;
  int64_t expert_stride;
};
void MultiplyExpertsWide(cudaStream_t stream, const ExpertArgs& args);
// And, in the same launch, the product `beside`, where it has rows: of the same kind (gated or not), few rows.
void MultiplyExpertsNarrow(cudaStream_t stream, const ExpertArgs& args, const ProductArgs& beside);
// As MultiplyExpertsWide for rows that are not gathered; false as MultiplyHopper.
bool MultiplyExpertsHopper(cudaStream_t stream, const ExpertArgs& args);

// Router, rows of class kGenerated: out = act(x w^T + bias) in float32.
struct RouterArgs {
  const bf16* x;   // [rows, width]
  const float* w;  // [n, k], width columns of it
  const float* bias;
  Activation activation;
  float* out;  // [rows, n]
  int rows, n, width, k;
  // Where there is one, x is RMS-normalised with it first; the result is written too.
  const float* norm;
  float eps;
  bf16* norm_out;
};
void MultiplyRouter(cudaStream_t stream, const RouterArgs& args);

}  // namespace quire::cuda
