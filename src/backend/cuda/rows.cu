#include "backend/cuda/device.cuh"
#include "backend/cuda/held_row.cuh"
#include "backend/cuda/products.h"
#include "backend/cuda/rows.h"
#include "backend/cuda/runtime.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRowsInBlock = kThreads / kWarp;

unsigned Blocks(int64_t count, int64_t in_block) {
  return static_cast<unsigned>(CeilDiv(count, in_block));
}

__device__ int64_t WarpRow() {
  return static_cast<int64_t>(blockIdx.x) * kRowsInBlock + threadIdx.x / kWarp;
}

__device__ void CopyRow(const bf16* from, int width, bf16* to) {
  HeldRow(from, width).Map(to, [](int, float v) { return v; });
}

__global__ void LayerNormKernel(const bf16* x, const float* weight, const float* bias, float eps, int64_t rows,
                                int width, bf16* out) {
  Begin();
  const int64_t r = WarpRow();
  if (r >= rows) return;
  const HeldRow row(x + r * width, width);
  float sum = 0, squares = 0;
  row.For([&](int, float v) { sum += v; });
  const float mean = WarpSum(sum) / static_cast<float>(width);
  row.For([&](int, float v) { squares += (v - mean) * (v - mean); });
  const float scale = 1.0f / sqrtf(WarpSum(squares) / static_cast<float>(width) + eps);
  row.Map(out + r * width, [&](int i, float v) { return (v - mean) * scale * weight[i] + bias[i]; });
}

__global__ void RmsNormKernel(const bf16* x, const float* weight, float eps, int64_t rows, int width, bf16* out) {
  Begin();
  const int64_t r = WarpRow();
  if (r >= rows) return;
  const HeldRow row(x + r * width, width);
  float squares = 0;
  row.For([&](int, float v) { squares += v * v; });
  const float scale = 1.0f / sqrtf(WarpSum(squares) / static_cast<float>(width) + eps);
  row.Map(out + r * width, [&](int i, float v) { return v * scale * weight[i]; });
}

// One thread a pair of elements and row; it turns the pair in all heads.
__global__ void RopeKernel(bf16* x, int heads, int dim, int first, int count, const int32_t* positions, float theta,
                           int64_t rows) {
  const int half = dim / 2;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= rows * half) return;
  const int64_t r = at / half;
  const int i = static_cast<int>(at % half);
  const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
  const float angle = static_cast<float>(positions[r]) * (1.0f / powf(theta, exponent));
  float sine, cosine;
  sincosf(angle, &sine, &cosine);
  for (int h = first; h < first + count; ++h) {
    bf16* v = x + (r * heads + h) * dim;
    const float a = __bfloat162float(v[i]), b = __bfloat162float(v[i + half]);
    v[i] = __float2bfloat16_rn(a * cosine - b * sine);
    v[i + half] = __float2bfloat16_rn(b * cosine + a * sine);
  }
}

__global__ void SiluMulKernel(const bf16* x, int64_t rows, int width, bf16* out) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= rows * width) return;
  const bf16* row = x + at / width * 2 * width + at % width;
  out[at] = __float2bfloat16_rn(Silu(__bfloat162float(row[0])) * __bfloat162float(row[width]));
}

// value(at) for every element of out, two a thread where their count allows it.
template <typename Value>
__global__ void MapKernel(int64_t count, bf16* out, Value value) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * 2;
  if (at + 1 < count) {
    *reinterpret_cast<uint32_t*>(out + at) = Pack(value(at), value(at + 1));
  } else if (at < count) {
    out[at] = __float2bfloat16_rn(value(at));
  }
}
template <typename Value>
void Map(cudaStream_t stream, int64_t count, bf16* out, Value value) {
  if (count == 0) return;
  MapKernel<<<Blocks(count, kThreads * 2), kThreads, 0, stream>>>(count, out, value);
  CheckLaunch("work on elements");
}

__global__ void WidenKernel(const bf16* from, int64_t count, float* to) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at < count) to[at] = __bfloat162float(from[at]);
}

// A warp a row.
__global__ void ScatterKernel(const bf16* from, const int32_t* rows, int64_t count, int width, bf16* to) {
  const int64_t r = WarpRow();
  if (r >= count || rows[r] < 0) return;
  CopyRow(from + r * width, width, to + static_cast<int64_t>(rows[r]) * width);
}

__global__ void GatherPairsKernel(const bf16* from, const int32_t* pairs, int64_t count, int top_k, int width,
                                  bf16* to) {
  const int64_t i = WarpRow();
  if (i >= count) return;
  CopyRow(from + static_cast<int64_t>(pairs[i] / top_k) * width, width, to + i * width);
}

__global__ void EmbedKernel(const int32_t* sources, const int32_t* indices, int rows, const bf16* table,
                            int64_t table_stride, const bf16* embeddings, const int32_t* last_samples, int width,
                            bf16* out) {
  Begin();
  const int64_t r = WarpRow();
  if (r >= rows) return;
  const int64_t index = indices[r];
  const bf16* row = nullptr;
  switch (sources[r]) {
    case 0:
      row = table + index * table_stride;
      break;
    case 1:
      row = table + last_samples[index] * table_stride;
      break;
    default:
      row = embeddings + index * width;
  }
  CopyRow(row, width, out + r * width);
}

constexpr int kMostExperts = 256;

// A row's experts by one warp; each lane holds every 32nd. Lane s has the one of slot s: its id, or -1, and its weight.
__device__ void RouteRow(const float* logits, int experts, int top_k, bool normalize, float scale, bool there,
                         int* id_out, float* weight_out) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  constexpr int kHeld = kMostExperts / kWarp;
  constexpr float kTaken = -INFINITY;
  float held[kHeld];
  float largest = kTaken;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int e = lane + j * kWarp;
    held[j] = e < experts ? logits[e] : kTaken;
    largest = fmaxf(largest, held[j]);
  }
  largest = WarpMax(largest);
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) sum += lane + j * kWarp < experts ? expf(held[j] - largest) : 0;
  sum = WarpSum(sum);
  float chosen_p = 0, chosen_sum = 0;
  int chosen_id = -1;
  for (int s = 0; s < top_k; ++s) {
    float best = kTaken;
    int id = kMostExperts;
#pragma unroll
    for (int j = 0; j < kHeld; ++j)
      if (held[j] > best) best = held[j], id = lane + j * kWarp;
#pragma unroll
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
      const float other = __shfl_xor_sync(0xFFFFFFFFu, best, offset);
      const int other_id = __shfl_xor_sync(0xFFFFFFFFu, id, offset);
      if (other > best || (other == best && other_id < id)) best = other, id = other_id;
    }
    const float p = expf(best - largest) / sum;
    chosen_sum += p;
    if (lane == s) chosen_p = p, chosen_id = id < experts ? id : -1;  // none: logits that are no numbers
#pragma unroll
    for (int j = 0; j < kHeld; ++j)
      if (id == lane + j * kWarp) held[j] = kTaken;
  }
  *id_out = there ? chosen_id : -1;
  *weight_out = there ? (normalize ? chosen_p / (chosen_sum + 1e-20f) : chosen_p) * scale : 0;
}

__global__ void RouteKernel(RouteArgs a) {
  Begin();
  const int64_t r = WarpRow();
  if (r >= a.rows) return;
  int id;
  float weight;
  RouteRow(a.logits + r * a.experts, a.experts, a.top_k, a.normalize, a.scale, !a.slots || a.slots[r] >= 0, &id,
           &weight);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (lane >= a.top_k) return;
  a.ids[r * a.top_k + lane] = id;
  a.weights[r * a.top_k + lane] = weight;
}

// By one block. The order of an expert's pairs is free: each is a product of its own.
constexpr int kSortThreads = 1024;
__device__ void SortPairs(const int32_t* ids, int pairs, int experts, const ExpertLists& lists) {
  __shared__ int counts[kMostExperts], offsets[kMostExperts + 1], tiles[kMostExperts + 1], ranks[kMostExperts + 1];
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < experts) counts[thread] = 0;
  __syncthreads();
  for (int i = thread; i < pairs; i += kSortThreads)
    if (ids[i] >= 0) atomicAdd(&counts[ids[i]], 1);
  __syncthreads();
  if (thread == 0) {
    offsets[0] = tiles[0] = ranks[0] = 0;
    for (int e = 0; e < experts; ++e) {
      offsets[e + 1] = offsets[e] + counts[e];
      tiles[e + 1] = tiles[e] + (counts[e] + kTileRows - 1) / kTileRows;
      ranks[e + 1] = ranks[e] + (counts[e] > 0);
    }
  }
  __syncthreads();
  if (thread <= experts) lists.offsets[thread] = offsets[thread];
  if (thread < experts) {
    const int e = thread, count = counts[e];
    lists.counts[e] = count;
    if (count > 0) lists.active[ranks[e]] = e;
    if (lists.tiles)
      for (int t = 0; t * kTileRows < count; ++t)
        lists.tiles[tiles[e] + t] = {offsets[e] + t * kTileRows, min(kTileRows, count - t * kTileRows), e, 0};
  }
  for (int i = ranks[experts] + thread; i <= experts; i += kSortThreads) lists.active[i] = -1;
  if (lists.tiles)
    for (int i = tiles[experts] + thread; i < lists.tile_count; i += kSortThreads) lists.tiles[i] = {0, 0, -1, 0};
  __syncthreads();
  for (int i = thread; i < pairs; i += kSortThreads)
    if (ids[i] >= 0) lists.pairs[atomicAdd(&offsets[ids[i]], 1)] = i;
}

__global__ __launch_bounds__(kSortThreads) void SortKernel(const int32_t* ids, int pairs, int experts,
                                                           ExpertLists lists) {
  Begin();
  SortPairs(ids, pairs, experts, lists);
}

// Both in one block, a warp a row.
constexpr int kSortedRows = kSortThreads / kWarp;
__global__ __launch_bounds__(kSortThreads) void RouteAndSortKernel(RouteArgs a, ExpertLists lists) {
  __shared__ int32_t ids[kSortThreads];
  Begin();
  const int r = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  if (r < a.rows) {
    int id;
    float weight;
    RouteRow(a.logits + r * a.experts, a.experts, a.top_k, a.normalize, a.scale, !a.slots || a.slots[r] >= 0, &id,
             &weight);
    if (lane < a.top_k) {
      ids[r * a.top_k + lane] = id;
      a.weights[r * a.top_k + lane] = weight;
    }
  }
  __syncthreads();
  SortPairs(ids, a.rows * a.top_k, a.experts, lists);
}

// A warp a row.
__global__ void CombineKernel(const bf16* y, const float* weights, const bf16* shared, int64_t rows, int top_k,
                              int width, bf16* x) {
  Begin();
  const int64_t r = WarpRow();
  if (r >= rows) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const float mine = lane < top_k ? weights[r * top_k + lane] : 0;
  if (width % 8 == 0) {
    for (int i = lane * 8; __any_sync(0xFFFFFFFFu, i < width); i += kWarp * 8) {
      const bool there = i < width;
      float sum[8] = {};
      const auto add = [&](const bf16* from, float weight) {
        const uint4 chunk = there ? *reinterpret_cast<const uint4*>(from + i) : uint4{};
        const uint32_t pairs[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float2 v = Unpack(pairs[j]);
          sum[2 * j] += weight * v.x;
          sum[2 * j + 1] += weight * v.y;
        }
      };
      for (int s = 0; s < top_k; ++s) add(y + (r * top_k + s) * width, __shfl_sync(0xFFFFFFFFu, mine, s));
      if (shared) add(shared + r * width, 1.0f);
      add(x + r * width, 1.0f);
      if (there)
        *reinterpret_cast<uint4*>(x + r * width + i) = {Pack(sum[0], sum[1]), Pack(sum[2], sum[3]),
                                                        Pack(sum[4], sum[5]), Pack(sum[6], sum[7])};
    }
    return;
  }
  for (int i = lane; i < width; i += kWarp) {
    float sum = 0;
    for (int s = 0; s < top_k; ++s) sum += weights[r * top_k + s] * __bfloat162float(y[(r * top_k + s) * width + i]);
    if (shared) sum += __bfloat162float(shared[r * width + i]);
    x[r * width + i] = __float2bfloat16_rn(sum + __bfloat162float(x[r * width + i]));
  }
}

// A thread eight elements of a patch, which lie together in x: a run is the part of a patch that does.
__global__ void PatchChunksKernel(const bf16* x, ConvolutionShape s, int run, int depth, int rows, bf16* out) {
  const int chunks = depth / 8;
  const int at = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (at >= rows * chunks) return;
  const int r = at / chunks, c = at % chunks * 8, in = static_cast<int>(s.in);
  const int ox = r % static_cast<int>(s.out_width),
            oy = r / static_cast<int>(s.out_width) % static_cast<int>(s.out_height);
  const int b = r / static_cast<int>(s.out_width * s.out_height);
  const int which = c / run, columns = run / in, per_line = s.kernel / columns;
  const int iy = oy * s.stride + which / per_line - s.pad;
  const int ix = ox * s.stride + which % per_line * columns - s.pad;
  uint4 chunk{};
  if (iy >= 0 && iy < s.height && ix >= 0 && ix < s.width)
    chunk =
        *reinterpret_cast<const uint4*>(x + ((static_cast<int64_t>(b) * s.height + iy) * s.width + ix) * in + c % run);
  *reinterpret_cast<uint4*>(out + static_cast<int64_t>(at) * 8) = chunk;
}

}  // namespace

bool HasKernels() {
  cudaFuncAttributes attributes{};
  const bool found = cudaFuncGetAttributes(&attributes, LayerNormKernel) == cudaSuccess;
  cudaGetLastError();
  return found;
}

void LayerNormRows(cudaStream_t stream, const bf16* x, const float* weight, const float* bias, float eps, int64_t rows,
                   int width, bf16* out) {
  LayerNormKernel<<<Blocks(rows, kRowsInBlock), kThreads, 0, stream>>>(x, weight, bias, eps, rows, width, out);
  CheckLaunch("layer norm");
}

void RmsNormRows(cudaStream_t stream, const bf16* x, const float* weight, float eps, int64_t rows, int width,
                 bf16* out) {
  LaunchChained(RmsNormKernel, Blocks(rows, kRowsInBlock), kThreads, 0, stream, x, weight, eps, rows, width, out);
}

void RopeRows(cudaStream_t stream, bf16* x, int heads, int dim, int first, int count, const int32_t* positions,
              float theta, int64_t rows) {
  RopeKernel<<<Blocks(rows * (dim / 2), kThreads), kThreads, 0, stream>>>(x, heads, dim, first, count, positions, theta,
                                                                          rows);
  CheckLaunch("rotary positions");
}

void SiluMulRows(cudaStream_t stream, const bf16* x, int64_t rows, int width, bf16* out) {
  SiluMulKernel<<<Blocks(rows * width, kThreads), kThreads, 0, stream>>>(x, rows, width, out);
  CheckLaunch("silu");
}

void AddRepeated(cudaStream_t stream, bf16* x, int64_t elements, const float* w, int64_t count) {
  Map(stream, elements, x, [=] __device__(int64_t i) { return __bfloat162float(x[i]) + w[i % count]; });
}

void Narrow(cudaStream_t stream, const float* from, int64_t count, bf16* to) {
  Map(stream, count, to, [=] __device__(int64_t i) { return from[i]; });
}

void Widen(cudaStream_t stream, const bf16* from, int64_t count, float* to) {
  WidenKernel<<<Blocks(count, kThreads), kThreads, 0, stream>>>(from, count, to);
  CheckLaunch("conversion");
}

void PadRows(cudaStream_t stream, const bf16* from, int64_t rows, int width, int padded, int times, bf16* to) {
  Map(stream, rows * times * padded, to, [=] __device__(int64_t i) {
    const int64_t r = i / padded / times, c = i % padded;
    return c < width ? __bfloat162float(from[r * width + c]) : 0.0f;
  });
}

void ScatterRows(cudaStream_t stream, const bf16* from, const int32_t* rows, int64_t count, int width, bf16* to) {
  ScatterKernel<<<Blocks(count, kRowsInBlock), kThreads, 0, stream>>>(from, rows, count, width, to);
  CheckLaunch("scatter");
}

void GatherPairs(cudaStream_t stream, const bf16* from, const int32_t* pairs, int64_t count, int top_k, int width,
                 bf16* to) {
  if (count == 0) return;
  GatherPairsKernel<<<Blocks(count, kRowsInBlock), kThreads, 0, stream>>>(from, pairs, count, top_k, width, to);
  CheckLaunch("gather");
}

void NormaliseBytes(cudaStream_t stream, const uint8_t* pixels, int64_t count, bf16* out) {
  Map(stream, count, out,
      [=] __device__(int64_t i) { return __fdiv_rn(__fdiv_rn(static_cast<float>(pixels[i]), 255.0f) - 0.5f, 0.5f); });
}

void GatherPatches(cudaStream_t stream, const bf16* x, const ConvolutionShape& s, int padded, bf16* out) {
  const int64_t rows = s.batch * s.out_height * s.out_width;
  const int64_t depth = s.kernel * s.kernel * s.in;
  // Without padding a patch's line lies together, if it begins at a chunk.
  const bool whole_lines = s.pad == 0 && s.stride * s.in % 8 == 0 && s.width * s.in % 8 == 0;
  const int64_t run = whole_lines ? s.kernel * s.in : s.in;
  if (run % 8 == 0 && padded == depth && rows * depth / 8 < int64_t{1} << 31) {
    PatchChunksKernel<<<Blocks(rows * depth / 8, kThreads), kThreads, 0, stream>>>(x, s, static_cast<int>(run), padded,
                                                                                   static_cast<int>(rows), out);
    CheckLaunch("patches of a convolution");
    return;
  }
  Map(stream, rows * padded, out, [=] __device__(int64_t i) {
    const int64_t r = i / padded, c = i % padded;
    if (c >= depth) return 0.0f;
    const int64_t b = r / (s.out_height * s.out_width), oy = r / s.out_width % s.out_height, ox = r % s.out_width;
    const int64_t iy = oy * s.stride + c / (s.kernel * s.in) - s.pad;
    const int64_t ix = ox * s.stride + c / s.in % s.kernel - s.pad;
    if (iy < 0 || iy >= s.height || ix < 0 || ix >= s.width) return 0.0f;
    return __bfloat162float(x[((b * s.height + iy) * s.width + ix) * s.in + c % s.in]);
  });
}

void EmbedRows(cudaStream_t stream, const int32_t* sources, const int32_t* indices, int rows, const bf16* table,
               int64_t table_stride, const bf16* embeddings, const int32_t* last_samples, int width, bf16* out) {
  LaunchChained(EmbedKernel, Blocks(rows, kRowsInBlock), kThreads, 0, stream, sources, indices, rows, table,
                table_stride, embeddings, last_samples, width, out);
}

void RouteRows(cudaStream_t stream, const RouteArgs& args) {
  LaunchChained(RouteKernel, Blocks(args.rows, kRowsInBlock), kThreads, 0, stream, args);
}

void SortByExpert(cudaStream_t stream, const int32_t* ids, int rows, int top_k, int experts, const ExpertLists& lists) {
  LaunchChained(SortKernel, 1, kSortThreads, 0, stream, ids, rows * top_k, experts, lists);
}

bool RouteAndSort(cudaStream_t stream, const RouteArgs& args, const ExpertLists& lists) {
  if (args.rows > kSortedRows) return false;
  LaunchChained(RouteAndSortKernel, 1, kSortThreads, 0, stream, args, lists);
  return true;
}

void CombineRows(cudaStream_t stream, const bf16* y, const float* weights, const bf16* shared, int64_t rows, int top_k,
                 int width, bf16* x) {
  LaunchChained(CombineKernel, Blocks(rows, kRowsInBlock), kThreads, 0, stream, y, weights, shared, rows, top_k, width,
                x);
}

}  // namespace quire::cuda
