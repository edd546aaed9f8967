// Products of many rows: tiles of 128 x 128 in shared memory, bf16 fragments.
#include <algorithm>

#include "backend/cuda/activation.cuh"
#include "backend/cuda/device.cuh"
#include "backend/cuda/products.h"
#include "backend/cuda/runtime.h"

namespace quire::cuda {
namespace {

constexpr int kTile = 128;  // rows of x, and of w
constexpr int kDepth = 64;  // of k in a stage
constexpr int kThreads = 256;
constexpr int kOperandBytes = kTile * kDepth * 2;
constexpr int kStageBytes = 2 * kOperandBytes;

struct WideArgs {
  ProductArgs p;
  const int4* tiles;         // null: tile i holds rows from 128 i on
  const int32_t* x_pairs;    // row i of x is x_pairs[i] / top_k; null: row i
  const int32_t* out_pairs;  // row i of out is out_pairs[i]; null: row i
  int64_t expert_stride;
  int top_k;
  int stages;
};

// Chunks of 16 bytes are spread so that eight rows of a fragment lie in different banks.
__device__ int ChunkAt(int row, int chunk) {
  return row * kDepth * 2 + ((chunk ^ (row & 7)) << 4);
}

// Eight warps, each 64 x 32. With kGated, half of a warp's columns are gates and half their ups, so that a thread holds
// both of a pair.
template <bool kGated>
__global__ __launch_bounds__(kThreads) void WideKernel(WideArgs a) {
  extern __shared__ __align__(1024) char shared[];
  const ProductArgs& p = a.p;
  const int tid = threadIdx.x, lane = tid % kWarp, warp = tid / kWarp;
  const int wm = warp / 4, wn = warp % 4, g = lane / 4, t = lane % 4;

  int first = static_cast<int>(blockIdx.y) * kTile, count = min(kTile, p.rows - first);
  const bf16* w = p.w;
  if (a.tiles) {
    const int4 tile = a.tiles[blockIdx.y];
    if (tile.z < 0) return;
    first = tile.x, count = tile.y;
    w += tile.z * a.expert_stride;
  }
  const int n0 = static_cast<int>(blockIdx.x) * (kGated ? kTile / 2 : kTile);

  // Each thread copies the same four chunks of x and of w in every stage.
  const bf16* x_from[4];
  const bf16* w_from[4];
  bool x_there[4];
  int at[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = tid / 8 + i * 32, chunk = tid % 8;
    at[i] = ChunkAt(row, chunk);
    x_there[i] = row < count;
    const int index = first + (x_there[i] ? row : 0);
    const int64_t x_row = a.x_pairs ? a.x_pairs[index] / a.top_k : index;
    x_from[i] = p.x + x_row * p.k + chunk * 8;
    const int w_row = kGated ? n0 + row % 64 + (row / 64) * p.up_row : n0 + row;
    w_from[i] = w + static_cast<int64_t>(w_row) * p.k + chunk * 8;
  }
  const auto load = [&](int stage, int k0) {
    char* to = shared + stage * kStageBytes;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      CopyAsync(to + at[i], x_from[i] + k0, x_there[i]);
      CopyAsync(to + kOperandBytes + at[i], w_from[i] + k0, true);
    }
  };

  const int steps = p.k / kDepth;
  for (int s = 0; s < a.stages - 1; ++s) {
    if (s < steps) load(s, s * kDepth);
    CommitCopies();
  }
  float acc[4][4][4] = {};
  int read = 0, write = a.stages - 1;
  for (int step = 0; step < steps; ++step) {
    if (a.stages == 4) {
      WaitCopies<2>();
    } else if (a.stages == 3) {
      WaitCopies<1>();
    } else {
      WaitCopies<0>();
    }
    __syncthreads();
    if (step + a.stages - 1 < steps) load(write, (step + a.stages - 1) * kDepth);
    CommitCopies();
    const uint32_t x_at = SharedAddress(shared + read * kStageBytes), w_at = x_at + kOperandBytes;
#pragma unroll
    for (int ks = 0; ks < kDepth / 16; ++ks) {
      uint32_t xf[4][4], wf[2][4];
#pragma unroll
      for (int m = 0; m < 4; ++m) LoadMatrices(xf[m], x_at + ChunkAt(wm * 64 + m * 16 + lane % 16, ks * 2 + lane / 16));
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int base = kGated ? j * 64 + wn * 16 : wn * 32 + j * 16;
        LoadMatrices(wf[j], w_at + ChunkAt(base + lane % 8 + lane / 16 * 8, ks * 2 + lane / 8 % 2));
      }
#pragma unroll
      for (int m = 0; m < 4; ++m)
#pragma unroll
        for (int j = 0; j < 4; ++j) Mma(acc[m][j], xf[m], wf[j / 2][j % 2 * 2], wf[j / 2][j % 2 * 2 + 1]);
    }
    read = read + 1 == a.stages ? 0 : read + 1;
    write = write + 1 == a.stages ? 0 : write + 1;
  }

#pragma unroll
  for (int m = 0; m < 4; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = wm * 64 + m * 16 + half * 8 + g;
      if (row >= count) continue;
      const int64_t out_row = a.out_pairs ? a.out_pairs[first + row] : first + row;
      bf16* out = p.out + out_row * p.n;
#pragma unroll
      for (int j = 0; j < (kGated ? 2 : 4); ++j) {
        const int column = n0 + (kGated ? wn * 16 : wn * 32) + j * 8 + 2 * t;
        float v[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          v[i] = acc[m][j][half * 2 + i];
          if (kGated) {
            v[i] = Silu(v[i]) * acc[m][j + 2][half * 2 + i];
          } else {
            if (p.bias && column + i < p.n) v[i] += p.bias[column + i];
            v[i] = Activate(v[i], p.activation);
          }
        }
        if (p.out_float) {
#pragma unroll
          for (int i = 0; i < 2; ++i)
            if (column + i < p.n) p.out_float[out_row * p.n + column + i] = v[i];
        } else if (column + 1 < p.n && p.n % 2 == 0) {
          if (p.residual) {
            const float2 r = Unpack(*reinterpret_cast<const uint32_t*>(p.residual + out_row * p.n + column));
            v[0] += r.x, v[1] += r.y;
          }
          *reinterpret_cast<uint32_t*>(out + column) = Pack(v[0], v[1]);
        } else {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            if (column + i >= p.n) continue;
            if (p.residual) v[i] += __bfloat162float(p.residual[out_row * p.n + column + i]);
            out[column + i] = __float2bfloat16_rn(v[i]);
          }
        }
      }
    }
  }
}

int SharedLimit() {
  static const int limit = [] {
    int device = 0, bytes = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return bytes;
  }();
  return limit;
}

void Launch(cudaStream_t stream, WideArgs a, int row_tiles) {
  a.stages = std::clamp(SharedLimit() / 2 / kStageBytes, 2, 4);  // two blocks on a multiprocessor
  const int bytes = a.stages * kStageBytes;
  const bool gated = a.p.up_row > 0;
  const auto kernel = gated ? WideKernel<true> : WideKernel<false>;
  Check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "preparing a product");
  const dim3 grid(static_cast<unsigned>(CeilDiv(a.p.n, gated ? kTile / 2 : kTile)), static_cast<unsigned>(row_tiles));
  kernel<<<grid, kThreads, bytes, stream>>>(a);
  CheckLaunch("product of many rows");
}

}  // namespace

void MultiplyWide(cudaStream_t stream, const ProductArgs& args) {
  if (args.rows == 0 || MultiplyHopper(stream, args)) return;
  Launch(stream, {.p = args}, static_cast<int>(CeilDiv(args.rows, kTile)));
}

void MultiplyExpertsWide(cudaStream_t stream, const ExpertArgs& args) {
  if (args.product.rows == 0 || MultiplyExpertsHopper(stream, args)) return;
  Launch(stream,
         {.p = args.product,
          .tiles = args.lists.tiles,
          .x_pairs = args.gathered ? args.lists.pairs : nullptr,
          .out_pairs = args.scattered ? args.lists.pairs : nullptr,
          .expert_stride = args.expert_stride,
          .top_k = args.top_k},
         args.lists.tile_count);
}

}  // namespace quire::cuda
