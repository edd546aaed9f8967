// Attention in its kinds. Dims of a head: a multiple of 8, at most 128.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace quire::cuda {

using bf16 = __nv_bfloat16;

// SAM's, as Backend::GridAttention. rows, columns: bf16 tables [2 side - 1, dim], `table_stride` apart.
struct GridArgs {
  const bf16* qkv;
  const bf16* pad;  // [3 heads dim]
  const bf16* rows;
  const bf16* columns;
  bf16* out;
  int batch, height, width, heads, dim, side_y, side_x, table_stride;
};
void AttendGrid(cudaStream_t stream, const GridArgs& args);

struct PrefixArgs {
  const bf16* qkv;
  bf16* out;
  int batch, tokens, heads, kv_heads, dim, prefix;
};
void AttendPrefix(cudaStream_t stream, const PrefixArgs& args);

// One layer of a cache: [page][key or value][head][token in page][dim].
struct LayerCache {
  bf16* data;
  int kv_heads, dim;
};

// The device's copy of StepInputs (backend/step.h).
struct StepArrays {
  const int32_t* sources;
  const int32_t* indices;
  const int32_t* positions;
  const int32_t* slots;
  const int32_t* pages;
  int pages_per_slot;
};

// Up to 64 rows of one sequence, at consecutive positions.
struct QueryTile {
  int32_t first, count;
};

struct PagedArgs {
  const bf16* qkv;  // [rows, heads + 2 kv_heads, dim]
  bf16* out;        // [rows, heads dim]
  LayerCache cache;
  StepArrays step;
  int heads;
};
void AppendRows(cudaStream_t stream, const PagedArgs& args, int rows);
// Rotates queries in place and writes rotated keys, and values, into the cache: RopeRows, then AppendRows.
void RopeAndAppendRows(cudaStream_t stream, const PagedArgs& args, bf16* qkv, float theta, int rows);
void AttendPrompt(cudaStream_t stream, const PagedArgs& args, const QueryTile* tiles, int tile_count);

// Rows [first, first + rows) by blocks of kKeyBlock keys. partial: room for PartialFloats.
constexpr int64_t PartialFloats(int rows, int heads, int dim, int blocks) {
  return int64_t{rows} * heads * blocks * (dim + 2);
}
void AttendGenerated(cudaStream_t stream, const PagedArgs& args, int first, int rows, int blocks, float* partial);

}  // namespace quire::cuda
