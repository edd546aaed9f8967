// Work on single rows and elements. All activations bf16, arithmetic in float32; a row's sums are a warp's, in one
// order for all of them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "backend/cuda/products.h"

namespace quire::cuda {

// Whether the build has kernels that the current device can run.
bool HasKernels();

void LayerNormRows(cudaStream_t stream, const bf16* x, const float* weight, const float* bias, float eps, int64_t rows,
                   int width, bf16* out);
void RmsNormRows(cudaStream_t stream, const bf16* x, const float* weight, float eps, int64_t rows, int width,
                 bf16* out);
// Heads [first, first + count) of x [rows, heads, dim], in place.
void RopeRows(cudaStream_t stream, bf16* x, int heads, int dim, int first, int count, const int32_t* positions,
              float theta, int64_t rows);
void SiluMulRows(cudaStream_t stream, const bf16* x, int64_t rows, int width, bf16* out);
// x[i] += w[i % count]
void AddRepeated(cudaStream_t stream, bf16* x, int64_t elements, const float* w, int64_t count);
void Narrow(cudaStream_t stream, const float* from, int64_t count, bf16* to);
void Widen(cudaStream_t stream, const bf16* from, int64_t count, float* to);
// Rows of `width` to rows of `padded`, zeros behind, each `times` in a row.
void PadRows(cudaStream_t stream, const bf16* from, int64_t rows, int width, int padded, int times, bf16* to);
// to[rows[i]] = from[i]
void ScatterRows(cudaStream_t stream, const bf16* from, const int32_t* rows, int64_t count, int width, bf16* to);
// out[i] = (pixels[i] / 255 - 0.5) / 0.5
void NormaliseBytes(cudaStream_t stream, const uint8_t* pixels, int64_t count, bf16* out);

// to[i] = from[pairs[i] / top_k]
void GatherPairs(cudaStream_t stream, const bf16* from, const int32_t* pairs, int64_t count, int top_k, int width,
                 bf16* to);

struct ConvolutionShape {
  int64_t batch, height, width, in, out_height, out_width;
  int kernel, stride, pad;
};
// Patches of x [batch, height, width, in] as rows [batch out_height out_width, padded], in the order kernel row, kernel
// column, channel; zeros behind.
void GatherPatches(cudaStream_t stream, const bf16* x, const ConvolutionShape& shape, int padded, bf16* out);

// Rows of a step by their sources (backend/step.h); last_samples: of each slot.
void EmbedRows(cudaStream_t stream, const int32_t* sources, const int32_t* indices, int rows, const bf16* table,
               int64_t table_stride, const bf16* embeddings, const int32_t* last_samples, int width, bf16* out);

// The top_k experts of each row, as Backend::Route. At most 256 experts, 32 chosen.
struct RouteArgs {
  const float* logits;  // [rows, experts]
  int rows, experts, top_k;
  bool normalize;
  float scale;
  const int32_t* slots;  // null, or [rows]: those with a negative one choose none, -1
  int32_t* ids;          // [rows, top_k]
  float* weights;
};
void RouteRows(cudaStream_t stream, const RouteArgs& args);
// RouteRows and SortByExpert in one launch, ids left out; false for more rows than it takes.
bool RouteAndSort(cudaStream_t stream, const RouteArgs& args, const ExpertLists& lists);
// x[r] += sum over s of weights[r, s] y[r, s], + shared[r] where there is one.
void CombineRows(cudaStream_t stream, const bf16* y, const float* weights, const bf16* shared, int64_t rows, int top_k,
                 int width, bf16* x);

}  // namespace quire::cuda
