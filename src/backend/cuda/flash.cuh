// Attention of 64 queries over all their keys, 64 at a time, softmax kept relative to the largest logit so far
// (Dao et al. 2022, "FlashAttention", algorithm 1). A row's sums are the same whatever rows share its tile: keys that a
// row does not see have probability zero, and tiles of keys are taken in ascending order.
#pragma once

#include "backend/cuda/device.cuh"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/runtime.h"

namespace quire::cuda {

constexpr int kQueries = 64;  // of a block: four warps of 16
constexpr int kKeys = 64;     // of a step
constexpr int kFlashThreads = 128;
constexpr float kLog2E = 1.4426950408889634f;

// A tile of 64 rows of kDim elements in shared memory: panels of 64 columns, in each row of a panel (128 bytes) the
// chunks of 16 bytes exchanged by the row's number, which spreads them over the banks and is what wgmma reads.
constexpr int kPanelBytes = 64 * 128;
__device__ inline int TileAt(int row, int chunk) {
  return chunk / 8 * kPanelBytes + row * 128 + ((chunk % 8 ^ (row & 7)) << 4);
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
    CopyAsync(tile + TileAt(r, chunk), there ? from + chunk * 8 : somewhere, there);
  }
}

// The block's 64 queries: in shared memory, and on chips without wgmma the warp's 16 of them as fragments.
template <int kDim>
struct Queries {
  uint32_t tile;
#ifndef __CUDA_ARCH_FEAT_SM90_ALL
  uint32_t fragments[kDim / 16][4];
#endif

  // All threads must have passed Publish since the tile was written.
  __device__ explicit Queries(uint32_t address) : tile(address) {
#ifndef __CUDA_ARCH_FEAT_SM90_ALL
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
#pragma unroll
    for (int ks = 0; ks < kDim / 16; ++ks)
      LoadMatrices(fragments[ks], tile + TileAt(warp * 16 + lane % 16, ks * 2 + lane / 16));
#endif
  }
};

// s = q tile^T; s[4 j ..] are a fragment's results for the warp's 16 queries and rows 8 j .. 8 j + 7 of the tile. All
// threads must have passed Publish since the tile was written.
template <int kDim>
__device__ void MultiplyTile(const Queries<kDim>& q, uint32_t tile, float (&s)[32]) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  Settle(s);
  BeginProducts();
#pragma unroll
  for (int ks = 0; ks < kDim / 16; ++ks) {
    const int at = ks / 4 * kPanelBytes;
    MultiplyAsync(s, Descriptor(q.tile + at) + ks % 4 * 2, Descriptor(tile + at) + ks % 4 * 2, ks > 0);
  }
  CommitProducts();
  WaitProducts<0>();
  Settle(s);
#else
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int i = 0; i < 32; ++i) s[i] = 0;
#pragma unroll
  for (int ks = 0; ks < kDim / 16; ++ks) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      uint32_t k[4];
      LoadMatrices(k, tile + TileAt(j * 16 + lane % 8 + lane / 16 * 8, ks * 2 + lane / 8 % 2));
      Mma(&s[8 * j], q.fragments[ks], k[0], k[1]);
      Mma(&s[8 * j + 4], q.fragments[ks], k[2], k[3]);
    }
  }
#endif
}

// o[panel] += p tile, p [16 rows of the warp, 64].
template <int kDim>
__device__ void AddMix(const uint32_t (&p)[4][4], uint32_t tile, float (&o)[kDim / 64][32]) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  Settle(p);
#pragma unroll
  for (int panel = 0; panel < kDim / 64; ++panel) Settle(o[panel]);
  BeginProducts();
#pragma unroll
  for (int ks = 0; ks < 4; ++ks)
#pragma unroll
    for (int panel = 0; panel < kDim / 64; ++panel)
      MultiplyAsync(o[panel], p[ks], Descriptor(tile + panel * kPanelBytes + ks * 16 * 128));
  CommitProducts();
  WaitProducts<0>();
#pragma unroll
  for (int panel = 0; panel < kDim / 64; ++panel) Settle(o[panel]);
  Settle(p);
#else
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int ks = 0; ks < 4; ++ks) {
#pragma unroll
    for (int d = 0; d < kDim / 16; ++d) {
      uint32_t v[4];
      LoadTransposed(v, tile + TileAt(ks * 16 + lane % 16, d * 2 + lane / 16));
      Mma(&o[d / 4][d % 4 * 8], p[ks], v[0], v[1]);
      Mma(&o[d / 4][d % 4 * 8 + 4], p[ks], v[2], v[3]);
    }
  }
#endif
}

// Copies that a thread has waited for, to all threads of the block.
__device__ inline void Publish() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  FenceShared();
#endif
  __syncthreads();
}

// For policies that add nothing to the logits.
__device__ inline void ScaleAlone(float (&s)[32], float scale) {
#pragma unroll
  for (int i = 0; i < 32; ++i) s[i] *= scale;
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
//   void Begin<kDim>(scratch)         begins copies for the prologue; scratch: two tiles
//   void Prologue(q, scratch)   when they and the queries are there
//   void Scale(s, row, first, scale)   products to logits, in units of log 2
template <int kDim, typename Policy>
__global__ __launch_bounds__(kFlashThreads) void FlashKernel(Policy policy, int stages) {
  extern __shared__ char unaligned[];
  constexpr int kTileBytes = 64 * kDim * 2;
  if (!policy.Begin()) return;
  char* q_tile = unaligned + (-SharedAddress(unaligned) & 1023);
  char* kv = q_tile + kTileBytes;
  policy.extra = kv + stages * 2 * kTileBytes;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, g = lane / 4, t = lane % 4;
  const int row[2] = {warp * 16 + g, warp * 16 + g + 8};

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

  LoadTile<kDim>(q_tile, policy.dim, policy.somewhere(), [&](int r) { return policy.Query(r); });
  if (stages == 2) load(0, 0);  // while the prologue has the other stage
  char* scratch = kv + (stages - 1) * 2 * kTileBytes;
  policy.template Begin<kDim>(scratch);
  CommitCopies();
  WaitCopies<0>();
  Publish();
  const Queries<kDim> q(SharedAddress(q_tile));
  policy.Prologue(q, scratch);
  if (stages == 1) load(0, 0);
  CommitCopies();

  float o[kDim / 64][32] = {};
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  const int limit[2] = {policy.Limit(row[0]), policy.Limit(row[1])};
  const float scale = policy.scale * kLog2E;
  int stage = 0;
  for (int first = 0; first < policy.keys; first += kKeys) {
    WaitCopies<0>();
    Publish();
    if (stages == 2 && first + kKeys < policy.keys) load(stage ^ 1, first + kKeys);
    CommitCopies();
    const uint32_t k_tile = SharedAddress(kv + stage * 2 * kTileBytes), v_tile = k_tile + kTileBytes;
    float s[32] = {};
    MultiplyTile<kDim>(q, k_tile, s);
    policy.Scale(s, row, first, scale);
    // One branch for the warp: its products must meet all threads.
    if (__any_sync(0xFFFFFFFFu, first + kKeys > min(limit[0], limit[1]))) {
#pragma unroll
      for (int i = 0; i < 32; ++i)
        if (first + i / 4 * 8 + 2 * t + i % 2 >= limit[i / 2 % 2]) s[i] = -INFINITY;
    }
    float top[2] = {largest[0], largest[1]};
#pragma unroll
    for (int i = 0; i < 32; ++i) top[i / 2 % 2] = fmaxf(top[i / 2 % 2], s[i]);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      top[h] = fmaxf(top[h], __shfl_xor_sync(0xFFFFFFFFu, top[h], 1));
      top[h] = fmaxf(top[h], __shfl_xor_sync(0xFFFFFFFFu, top[h], 2));
      const float keep = Exp2(largest[h] - top[h]);
      largest[h] = top[h];
      sum[h] *= keep;
#pragma unroll
      for (int panel = 0; panel < kDim / 64; ++panel)
#pragma unroll
        for (int j = 0; j < 8; ++j) o[panel][4 * j + 2 * h] *= keep, o[panel][4 * j + 2 * h + 1] *= keep;
    }
    uint32_t p[4][4];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[4 * j + i] = Exp2(s[4 * j + i] - top[i / 2]);
        sum[i / 2] += s[4 * j + i];
      }
      p[j / 2][j % 2 * 2] = Pack(s[4 * j], s[4 * j + 1]);
      p[j / 2][j % 2 * 2 + 1] = Pack(s[4 * j + 2], s[4 * j + 3]);
    }
    AddMix<kDim>(p, v_tile, o);
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
      const float* of_d = &o[d / 8][d % 8 * 4 + 2 * h];
      const int column = d * 8 + 2 * t;
      if (column < policy.dim)
        *reinterpret_cast<uint32_t*>(out + column) = Pack(of_d[0] * scale_out, of_d[1] * scale_out);
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
  const int others = kTileBytes + extra_bytes + 1024;
  const int stages = others + 4 * kTileBytes <= limit ? 2 : 1, bytes = others + stages * 2 * kTileBytes;
  Check(cudaFuncSetAttribute(FlashKernel<kDim, Policy>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        "preparing attention");
  FlashKernel<kDim, Policy><<<grid, kFlashThreads, bytes, stream>>>(policy, stages);
  CheckLaunch("attention");
}

}  // namespace quire::cuda
