// The decoder's attention over the paged cache.
#include <cmath>

#include "backend/cuda/attention.h"
#include "backend/cuda/flash.cuh"
#include "backend/step.h"

namespace quire::cuda {
namespace {

static_assert(kPageTokens == kKeys, "a tile of keys is a page");

__device__ bf16* CacheRow(const LayerCache& c, int page, int part, int head, int token) {
  return c.data + (((static_cast<int64_t>(page) * 2 + part) * c.kv_heads + head) * kPageTokens + token) * c.dim;
}

__device__ int PageOf(const StepArrays& s, int slot, int position) {
  return s.pages[static_cast<int64_t>(slot) * s.pages_per_slot + position / kPageTokens];
}

// A thread an element of a row's keys and values.
__global__ void AppendKernel(PagedArgs a, int rows) {
  const int width = a.cache.kv_heads * a.cache.dim;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= int64_t{rows} * 2 * width) return;
  const auto r = static_cast<int>(at / (2 * width));
  const int i = static_cast<int>(at % (2 * width)), part = i / width, head = i % width / a.cache.dim;
  const int slot = a.step.slots[r], position = a.step.positions[r];
  if (slot < 0) return;
  CacheRow(a.cache, PageOf(a.step, slot, position), part, head, position % kPageTokens)[i % a.cache.dim] =
      a.qkv[static_cast<int64_t>(r) * (a.heads + 2 * a.cache.kv_heads) * a.cache.dim + a.heads * a.cache.dim + i];
}

// A thread a pair of elements i and i + dim / 2 of kHeadsAtOnce heads (queries, keys, values) of a row.
constexpr int kHeadsAtOnce = 5;
__global__ void RopeAndAppendKernel(PagedArgs a, bf16* qkv, float theta, int rows) {
  Begin();
  const int dim = a.cache.dim, half = dim / 2, all = a.heads + 2 * a.cache.kv_heads;
  const int groups = (all + kHeadsAtOnce - 1) / kHeadsAtOnce;
  const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (at >= rows * groups * half) return;
  const int i = at % half, first = at / half % groups * kHeadsAtOnce, r = at / half / groups;
  const int slot = a.step.slots[r], position = a.step.positions[r];
  bf16* row = qkv + static_cast<int64_t>(r) * all * dim;
  bf16 low[kHeadsAtOnce], high[kHeadsAtOnce];
#pragma unroll
  for (int h = 0; h < kHeadsAtOnce; ++h) {
    if (first + h >= all) break;
    low[h] = row[(first + h) * dim + i];
    high[h] = row[(first + h) * dim + i + half];
  }
  float sine = 0, cosine = 1;
  if (first < a.heads + a.cache.kv_heads) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    sincosf(static_cast<float>(position) * (1.0f / powf(theta, exponent)), &sine, &cosine);
  }
  bf16* page = slot >= 0 ? CacheRow(a.cache, PageOf(a.step, slot, position), 0, 0, position % kPageTokens) : nullptr;
#pragma unroll
  for (int h = 0; h < kHeadsAtOnce; ++h) {
    const int head = first + h;
    if (head >= all) break;
    if (head < a.heads + a.cache.kv_heads) {
      const float x = __bfloat162float(low[h]), y = __bfloat162float(high[h]);
      low[h] = __float2bfloat16_rn(x * cosine - y * sine);
      high[h] = __float2bfloat16_rn(y * cosine + x * sine);
    }
    // Keys of all heads lie in a page before the values.
    bf16* to = head < a.heads ? row + head * dim : page ? page + (head - a.heads) * kPageTokens * dim : nullptr;
    if (!to) continue;
    to[i] = low[h];
    to[i + half] = high[h];
  }
}

// Blocks: (tiles of queries, heads).
struct PromptPolicy {
  PagedArgs a;
  const QueryTile* tiles;
  float scale;
  int64_t value_offset;
  int dim, keys;
  char* extra;

  QueryTile tile;
  int head, kv_head, slot, position;
  const bf16* page;  // of the keys asked for

  __device__ const void* somewhere() const { return a.qkv; }
  __device__ bool Begin() {
    tile = tiles[blockIdx.x];
    if (tile.count == 0) return false;
    head = static_cast<int>(blockIdx.y);
    kv_head = head / (a.heads / a.cache.kv_heads);
    slot = a.step.slots[tile.first];
    position = a.step.positions[tile.first];
    keys = position + tile.count;
    return slot >= 0;
  }
  __device__ const bf16* Query(int row) const {
    if (row >= tile.count) return nullptr;
    return a.qkv + (static_cast<int64_t>(tile.first + row) * (a.heads + 2 * a.cache.kv_heads) + head) * dim;
  }
  __device__ void Turn(int first) { page = CacheRow(a.cache, PageOf(a.step, slot, first), 0, kv_head, 0); }
  __device__ const bf16* Key(int key) const { return page + key % kPageTokens * dim; }
  __device__ int Limit(int row) const { return row < tile.count ? position + row + 1 : 1; }
  __device__ bf16* Out(int row) const {
    if (row >= tile.count) return nullptr;
    return a.out + (static_cast<int64_t>(tile.first + row) * a.heads + head) * dim;
  }
  template <int kDim>
  __device__ void Begin(char*) {}
  template <int kDim>
  __device__ void Prologue(const Queries<kDim>&, char*) {}
  __device__ void Scale(float (&s)[32], const int (&)[2], int, float scale_log2) const { ScaleAlone(s, scale_log2); }
};

constexpr int kPages = kKeyBlock / kPageTokens;  // of a block of keys: a warp each
constexpr int kGeneratedThreads = kPages * kWarp;

// One block: one query against one block of keys -> largest logit, sum, mix. Blocks: (blocks of keys, heads, rows).
template <int kDim>
__global__ __launch_bounds__(kGeneratedThreads) void GeneratedKernel(PagedArgs a, int first, float* partial) {
  Begin();
  __shared__ float logits[kKeyBlock], mixes[kPages][kDim];
  const int r = first + static_cast<int>(blockIdx.z), head = static_cast<int>(blockIdx.y);
  const int block = static_cast<int>(blockIdx.x), dim = a.cache.dim;
  const int slot = a.step.slots[r], seen = a.step.positions[r] + 1;
  const int begin = block * kKeyBlock, count = min(kKeyBlock, seen - begin);
  if (slot < 0 || count <= 0) return;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, g = lane / 4, t = lane % 4;
  const int kv_head = head / (a.heads / a.cache.kv_heads), mine = min(kPageTokens, count - warp * kPageTokens);
  const bf16* keys = nullptr;
  if (mine > 0) keys = CacheRow(a.cache, PageOf(a.step, slot, begin + warp * kPageTokens), 0, kv_head, 0);

  if (mine > 0) {
    // Keys are the rows of a fragment, the query its first column. As in narrow.cu, lane t holds dims 8 t .. 8 t + 7 of
    // each 32.
    const bf16* q = a.qkv + (static_cast<int64_t>(r) * (a.heads + 2 * a.cache.kv_heads) + head) * dim;
    uint4 qf[kDim / 32];
#pragma unroll
    for (int c = 0; c < kDim / 32; ++c) {
      const int at = c * 32 + t * 8;
      qf[c] = g == 0 && at < dim ? *reinterpret_cast<const uint4*>(q + at) : uint4{};
    }
    const float scale = kLog2E / sqrtf(static_cast<float>(dim));
#pragma unroll
    for (int m = 0; m < kPageTokens / 16; ++m) {
      float acc[4] = {};
#pragma unroll
      for (int c = 0; c < kDim / 32; ++c) {
        const int at = c * 32 + t * 8, low_key = m * 16 + g, high_key = low_key + 8;
        const uint4 low = low_key < mine && at < dim ? LoadCached(keys + low_key * dim + at) : uint4{};
        const uint4 high = high_key < mine && at < dim ? LoadCached(keys + high_key * dim + at) : uint4{};
        const uint32_t one[4] = {low.x, high.x, low.y, high.y}, two[4] = {low.z, high.z, low.w, high.w};
        Mma(acc, one, qf[c].x, qf[c].y);
        Mma(acc, two, qf[c].z, qf[c].w);
      }
      if (t == 0) {
        logits[warp * kPageTokens + m * 16 + g] = acc[0] * scale;
        logits[warp * kPageTokens + m * 16 + g + 8] = acc[2] * scale;
      }
    }
  }
  __syncthreads();
  float largest = -INFINITY, sum = 0;
  for (int i = lane; i < count; i += kWarp) largest = fmaxf(largest, logits[i]);
  largest = WarpMax(largest);
  for (int i = lane; i < count; i += kWarp) sum += Exp2(logits[i] - largest);
  sum = WarpSum(sum);

  constexpr int kLanes = kDim / 8, kAtOnce = kWarp / kLanes;  // lanes of a value; values at once
  const int chunk = lane % kLanes;
  float mix[8] = {};
  if (mine > 0 && chunk * 8 < dim) {
    const bf16* values = keys + static_cast<int64_t>(a.cache.kv_heads) * kPageTokens * dim + chunk * 8;
#pragma unroll 8
    for (int i = lane / kLanes; i < mine; i += kAtOnce) {
      const float p = Exp2(logits[warp * kPageTokens + i] - largest);
      const uint4 v = LoadCached(values + i * dim);
      const uint32_t pairs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float2 x = Unpack(pairs[j]);
        mix[2 * j] += p * x.x;
        mix[2 * j + 1] += p * x.y;
      }
    }
  }
#pragma unroll
  for (int j = 0; j < 8; ++j)
#pragma unroll
    for (int offset = kLanes; offset < kWarp; offset *= 2) mix[j] += __shfl_xor_sync(0xFFFFFFFFu, mix[j], offset);
  if (lane < kLanes)
#pragma unroll
    for (int j = 0; j < 8; ++j) mixes[warp][chunk * 8 + j] = mix[j];
  __syncthreads();
  float* out = partial + ((static_cast<int64_t>(blockIdx.z) * a.heads + head) * gridDim.x + block) * (dim + 2);
  for (int i = static_cast<int>(threadIdx.x); i < dim; i += kGeneratedThreads) {
    float value = mixes[0][i];
#pragma unroll
    for (int w = 1; w < kPages; ++w) value += mixes[w][i];
    out[2 + i] = value;
  }
  if (threadIdx.x == 0) out[0] = largest, out[1] = sum;
}

// Blocks of keys in ascending order. Blocks: (heads, rows); a thread a dim.
__global__ void MergeKernel(PagedArgs a, int first, int blocks, const float* partial) {
  Begin();
  const int head = static_cast<int>(blockIdx.x), dim = a.cache.dim, r = first + static_cast<int>(blockIdx.y);
  const bool there = a.step.slots[r] >= 0;
  const int used = there ? a.step.positions[r] / kKeyBlock + 1 : 0, i = static_cast<int>(threadIdx.x);
  if (i >= dim) return;
  const float* from = partial + (static_cast<int64_t>(blockIdx.y) * a.heads + head) * blocks * (dim + 2);
  float largest = -INFINITY, sum = 0, mix = 0;
  for (int b = 0; b < used; ++b, from += dim + 2) {
    const float next = fmaxf(largest, from[0]), keep = Exp2(largest - next), add = Exp2(from[0] - next);
    mix = mix * keep + from[2 + i] * add;
    sum = sum * keep + from[1] * add;
    largest = next;
  }
  a.out[(static_cast<int64_t>(r) * a.heads + head) * dim + i] = __float2bfloat16_rn(there ? mix / sum : 0.0f);
}

}  // namespace

void AppendRows(cudaStream_t stream, const PagedArgs& args, int rows) {
  if (rows == 0) return;
  const int64_t count = int64_t{rows} * 2 * args.cache.kv_heads * args.cache.dim;
  AppendKernel<<<static_cast<unsigned>(CeilDiv(count, 256)), 256, 0, stream>>>(args, rows);
  CheckLaunch("append to the cache");
}

void RopeAndAppendRows(cudaStream_t stream, const PagedArgs& args, bf16* qkv, float theta, int rows) {
  if (rows == 0) return;
  const int64_t groups = CeilDiv(args.heads + 2 * args.cache.kv_heads, kHeadsAtOnce);
  const int64_t count = rows * groups * (args.cache.dim / 2);
  LaunchChained(RopeAndAppendKernel, static_cast<unsigned>(CeilDiv(count, 256)), 256, 0, stream, args, qkv, theta,
                rows);
}

void AttendPrompt(cudaStream_t stream, const PagedArgs& args, const QueryTile* tiles, int tile_count) {
  if (tile_count == 0) return;
  PromptPolicy policy{.a = args, .tiles = tiles};
  policy.dim = args.cache.dim;
  policy.scale = 1.0f / std::sqrt(static_cast<float>(policy.dim));
  policy.value_offset = int64_t{args.cache.kv_heads} * kPageTokens * policy.dim;
  const dim3 grid(static_cast<unsigned>(tile_count), static_cast<unsigned>(args.heads));
  if (policy.dim <= 64) {
    LaunchFlash<64>(stream, policy, grid, 0);
  } else {
    LaunchFlash<128>(stream, policy, grid, 0);
  }
}

void AttendGenerated(cudaStream_t stream, const PagedArgs& args, int first, int rows, int blocks, float* partial) {
  if (rows == 0) return;
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(args.heads), static_cast<unsigned>(rows));
  if (args.cache.dim <= 64) {
    LaunchChained(GeneratedKernel<64>, grid, kGeneratedThreads, 0, stream, args, first, partial);
  } else {
    LaunchChained(GeneratedKernel<128>, grid, kGeneratedThreads, 0, stream, args, first, partial);
  }
  LaunchChained(MergeKernel, dim3(static_cast<unsigned>(args.heads), static_cast<unsigned>(rows)), 128, 0, stream, args,
                first, blocks, partial);
}

}  // namespace quire::cuda
