// Attention of 64 queries over all their keys, 64 at a time, softmax kept relative to the largest logit so far
// (Dao et al. 2022, "FlashAttention", algorithm 1). A row's sums are the same whatever rows share its tile: keys that a
// row does not see have probability zero, and tiles of keys are taken in ascending order.
#pragma once

#include "backend/cuda/device.cuh"
#include "backend/cuda/runtime.h"

namespace quire::cuda {

constexpr int kQueries = 64;  // of a block: four warps of 16
constexpr int kKeys = 64;     // of a step
constexpr int kFlashThreads = 128;
constexpr float kLog2E = 1.4426950408889634f;

// A tile of 64 rows of kDim elements in shared memory, chunks of 16 bytes spread over the banks.
template <int kDim>
__device__ int TileAt(int row, int chunk) {
  return row * kDim * 2 + ((chunk ^ (row & 7)) << 4);
}

// 64 rows into a tile; row(i) is the address of row i, or null for zeros. dim: elements that are there.
template <int kDim, typename Row>
__device__ void LoadTile(char* tile, int dim, const void* somewhere, Row row) {
  constexpr int kChunks = kDim / 8, kRowsAtOnce = kFlashThreads / kChunks;
  const int chunk = static_cast<int>(threadIdx.x) % kChunks;
#pragma unroll
  for (int i = 0; i < 64 / kRowsAtOnce; ++i) {
    const int r = static_cast<int>(threadIdx.x) / kChunks + i * kRowsAtOnce;
    const bf16* from = row(r);
    const bool there = from != nullptr && chunk * 8 < dim;
    CopyAsync(tile + TileAt<kDim>(r, chunk), there ? from + chunk * 8 : somewhere, there);
  }
}

// s[16 rows of the warp][64] = q tile^T
template <int kDim>
__device__ void MultiplyTile(const uint32_t (&q)[kDim / 16][4], uint32_t tile, float (&s)[8][4]) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int j = 0; j < 8; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) s[j][i] = 0;
#pragma unroll
  for (int ks = 0; ks < kDim / 16; ++ks) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      uint32_t k[4];
      LoadMatrices(k, tile + TileAt<kDim>(j * 16 + lane % 8 + lane / 16 * 8, ks * 2 + lane / 8 % 2));
      Mma(s[2 * j], q[ks], k[0], k[1]);
      Mma(s[2 * j + 1], q[ks], k[2], k[3]);
    }
  }
}

template <int kDim>
__device__ void LoadQueries(uint32_t tile, uint32_t (&q)[kDim / 16][4]) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
#pragma unroll
  for (int ks = 0; ks < kDim / 16; ++ks)
    LoadMatrices(q[ks], tile + TileAt<kDim>(warp * 16 + lane % 16, ks * 2 + lane / 16));
}

// For policies that add nothing to the logits.
__device__ inline void ScaleAlone(float (&s)[8][4], float scale) {
#pragma unroll
  for (int j = 0; j < 8; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) s[j][i] *= scale;
}

// A policy says what a block's rows and keys are:
//   bool Begin()                 false: nothing to do
//   int dim, keys; float scale   keys: that any row of the tile sees
//   const bf16* Query(int row)   or null
//   void Turn(int first)         keys from `first` on are asked for next
//   const bf16* Key(int key)     its value lies value_offset behind
//   int64_t value_offset
//   int Limit(int row)           row sees keys [0, Limit)
//   bf16* Out(int row)           or null
//   void Prologue<kDim>(q, scratch)   after the queries are there; scratch: one tile
//   void Scale(s, row, first, scale)   products to logits, in units of log 2
template <int kDim, typename Policy>
__global__ __launch_bounds__(kFlashThreads) void FlashKernel(Policy policy, int stages) {
  extern __shared__ __align__(128) char shared[];
  constexpr int kTileBytes = 64 * kDim * 2;
  if (!policy.Begin()) return;
  char* q_tile = shared;
  char* kv = shared + kTileBytes;
  policy.extra = kv + stages * 2 * kTileBytes;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, g = lane / 4, t = lane % 4;
  const int row[2] = {warp * 16 + g, warp * 16 + g + 8};

  LoadTile<kDim>(q_tile, policy.dim, policy.somewhere(), [&](int r) { return policy.Query(r); });
  CommitCopies();
  WaitCopies<0>();
  __syncthreads();
  uint32_t q[kDim / 16][4];
  LoadQueries<kDim>(SharedAddress(q_tile), q);
  policy.template Prologue<kDim>(q, kv);

  const auto load = [&](int stage, int first) {
    char* to = kv + stage * 2 * kTileBytes;
    policy.Turn(first);
    const auto key = [&](int r) { return first + r < policy.keys ? policy.Key(first + r) : nullptr; };
    LoadTile<kDim>(to, policy.dim, policy.somewhere(), key);
    LoadTile<kDim>(to + kTileBytes, policy.dim, policy.somewhere(), [&](int r) {
      const bf16* k = key(r);
      return k ? k + policy.value_offset : nullptr;
    });
  };

  float o[kDim / 8][4] = {};
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  const int limit[2] = {policy.Limit(row[0]), policy.Limit(row[1])};
  const float scale = policy.scale * kLog2E;
  load(0, 0);
  CommitCopies();
  int stage = 0;
  for (int first = 0; first < policy.keys; first += kKeys) {
    WaitCopies<0>();
    __syncthreads();
    if (stages == 2 && first + kKeys < policy.keys) load(stage ^ 1, first + kKeys);
    CommitCopies();
    const uint32_t k_tile = SharedAddress(kv + stage * 2 * kTileBytes), v_tile = k_tile + kTileBytes;
    float s[8][4];
    MultiplyTile<kDim>(q, k_tile, s);
    policy.Scale(s, row, first, scale);
    if (first + kKeys > min(limit[0], limit[1])) {
#pragma unroll
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (first + j * 8 + 2 * t + i % 2 >= limit[i / 2]) s[j][i] = -INFINITY;
    }
    float top[2] = {largest[0], largest[1]};
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) top[i / 2] = fmaxf(top[i / 2], s[j][i]);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      top[h] = fmaxf(top[h], __shfl_xor_sync(0xFFFFFFFFu, top[h], 1));
      top[h] = fmaxf(top[h], __shfl_xor_sync(0xFFFFFFFFu, top[h], 2));
      const float keep = Exp2(largest[h] - top[h]);
      largest[h] = top[h];
      sum[h] *= keep;
#pragma unroll
      for (int d = 0; d < kDim / 8; ++d) o[d][2 * h] *= keep, o[d][2 * h + 1] *= keep;
    }
    uint32_t p[4][4];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[j][i] = Exp2(s[j][i] - top[i / 2]);
        sum[i / 2] += s[j][i];
      }
      p[j / 2][j % 2 * 2] = Pack(s[j][0], s[j][1]);
      p[j / 2][j % 2 * 2 + 1] = Pack(s[j][2], s[j][3]);
    }
#pragma unroll
    for (int ks = 0; ks < 4; ++ks) {
#pragma unroll
      for (int d = 0; d < kDim / 16; ++d) {
        uint32_t v[4];
        LoadTransposed(v, v_tile + TileAt<kDim>(ks * 16 + lane % 16, d * 2 + lane / 16));
        Mma(o[2 * d], p[ks], v[0], v[1]);
        Mma(o[2 * d + 1], p[ks], v[2], v[3]);
      }
    }
    if (stages == 2) {
      stage ^= 1;
    } else {
      __syncthreads();
      if (first + kKeys < policy.keys) load(0, first + kKeys);
      CommitCopies();
    }
  }

#pragma unroll
  for (int h = 0; h < 2; ++h) {
    sum[h] += __shfl_xor_sync(0xFFFFFFFFu, sum[h], 1);
    sum[h] += __shfl_xor_sync(0xFFFFFFFFu, sum[h], 2);
    bf16* out = policy.Out(row[h]);
    if (!out) continue;
    const float scale_out = 1.0f / sum[h];
#pragma unroll
    for (int d = 0; d < kDim / 8; ++d) {
      const int column = d * 8 + 2 * t;
      if (column < policy.dim)
        *reinterpret_cast<uint32_t*>(out + column) = Pack(o[d][2 * h] * scale_out, o[d][2 * h + 1] * scale_out);
    }
  }
}

template <int kDim, typename Policy>
void LaunchFlash(cudaStream_t stream, const Policy& policy, dim3 grid, int extra_bytes) {
  static const int limit = [] {
    int device = 0, bytes = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return bytes;
  }();
  constexpr int kTileBytes = 64 * kDim * 2;
  const int stages = 5 * kTileBytes + extra_bytes <= limit ? 2 : 1;
  const int bytes = (1 + 2 * stages) * kTileBytes + extra_bytes;
  Check(cudaFuncSetAttribute(FlashKernel<kDim, Policy>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        "preparing attention");
  FlashKernel<kDim, Policy><<<grid, kFlashThreads, bytes, stream>>>(policy, stages);
  CheckLaunch("attention");
}

}  // namespace quire::cuda
