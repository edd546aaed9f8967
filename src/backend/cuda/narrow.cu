// Products of few rows over many weights: every weight is read once, straight into matrix fragments.
//
// The order of a sum: k is cut into segments of SegmentOf(k); in a segment, chunks of 32 in ascending order, two
// fragments of 16 a chunk; the segments are added in ascending order. Within a chunk, lane t of a row holds k = 8 t ..
// 8 t + 7, which are 16 bytes of x and of w: a fragment's own order of k does not matter, as long as both agree.
#include <algorithm>

#include "backend/cuda/activation.cuh"
#include "backend/cuda/device.cuh"
#include "backend/cuda/held_row.cuh"
#include "backend/cuda/products.h"
#include "backend/cuda/runtime.h"

namespace quire::cuda {
namespace {

constexpr int kSegments = 8;  // a warp each
constexpr int kThreads = kSegments * kWarp;
constexpr int kChunk = 32;

__host__ __device__ constexpr int SegmentOf(int k) {
  return ((k + kSegments - 1) / kSegments + kChunk - 1) / kChunk * kChunk;
}

struct NarrowArgs {
  ProductArgs p;
  ExpertLists lists;  // counts null: plain rows
  int64_t expert_stride;
  int top_k;
  bool gathered, scattered;
  ProductArgs beside;  // a plain product of its own in the last row of blocks, when it has rows
};

// One block: 16 outputs (kGated: 8 gates and their ups) of all rows, kColumns x 8 at a time.
template <int kColumns, bool kGated>
__global__ __launch_bounds__(kThreads) void NarrowKernel(NarrowArgs a) {
  __shared__ float sums[kSegments][16][kColumns * 8 + 1];
  constexpr int kAhead = kColumns == 1 ? 8 : 4;  // chunks of weights under way in a warp
  const int lane = threadIdx.x % kWarp, segment = threadIdx.x / kWarp, g = lane / 4, t = lane % 4;
  constexpr int kOutputs = kGated ? 8 : 16;
  const bool beside = a.beside.rows > 0 && blockIdx.y + 1 == gridDim.y, of_experts = a.lists.counts && !beside;
  const ProductArgs& p = beside ? a.beside : a.p;
  const int n0 = static_cast<int>(blockIdx.x) * kOutputs, k_all = p.k;
  const int begin = segment * SegmentOf(k_all), end = min(k_all, begin + SegmentOf(k_all));
  const bool there_are_outputs = n0 < p.n;

  const bf16* low = p.w + static_cast<int64_t>(n0 + g) * k_all + t * 8;
  const int64_t to_high = static_cast<int64_t>(kGated ? p.up_row : 8) * k_all;
  uint4 wl[kAhead], wh[kAhead];
  const auto load = [&](int k0) {
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int k = k0 + u * kChunk;
      const bool inside = k < end && there_are_outputs;
      wl[u] = inside ? LoadStream(low + k) : uint4{};
      wh[u] = inside ? LoadStream(low + to_high + k) : uint4{};
    }
  };
  if (!of_experts) load(begin);  // weights do not wait for the kernel before
  Begin();
  if (!there_are_outputs) return;

  int rows = p.rows, offset = 0;
  const int32_t *x_pairs = nullptr, *out_pairs = nullptr;
  if (of_experts) {
    const int expert = a.lists.active[blockIdx.y];
    if (expert < 0) return;
    rows = a.lists.counts[expert];
    offset = a.lists.offsets[expert];
    if (a.gathered) x_pairs = a.lists.pairs + offset;
    if (a.scattered) out_pairs = a.lists.pairs + offset;
    low += expert * a.expert_stride;
    load(begin);
  }

  for (int first = 0; first < rows; first += kColumns * 8) {
    const bf16* x[kColumns];
    bool there[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int row = first + c * 8 + g;
      there[c] = row < rows;
      const int64_t x_row = !there[c] ? 0 : x_pairs ? x_pairs[row] / a.top_k : offset + row;
      x[c] = p.x + x_row * k_all + t * 8;
    }
    float acc[kColumns][4] = {};
    for (int k0 = begin; k0 < end; k0 += kAhead * kChunk) {
      if (first > 0 || k0 > begin) load(k0);
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const int k = k0 + u * kChunk;
        if (k >= end) break;
        const uint32_t one[4] = {wl[u].x, wh[u].x, wl[u].y, wh[u].y}, two[4] = {wl[u].z, wh[u].z, wl[u].w, wh[u].w};
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          if (c > 0 && first + c * 8 >= rows) break;
          const uint4 xv = there[c] ? *reinterpret_cast<const uint4*>(x[c] + k) : uint4{};
          Mma(acc[c], one, xv.x, xv.y);
          Mma(acc[c], two, xv.z, xv.w);
        }
      }
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[segment][g + i / 2 * 8][c * 8 + 2 * t + i % 2] = acc[c][i];
    __syncthreads();
    for (int i = threadIdx.x; i < kOutputs * kColumns * 8; i += kThreads) {
      const int output = i % kOutputs, row = i / kOutputs, column = n0 + output;
      if (first + row >= rows || column >= p.n) continue;
      const auto add = [&](int which) {
        float sum = sums[0][which][row];
        for (int s = 1; s * SegmentOf(p.k) < p.k; ++s) sum += sums[s][which][row];
        return sum;
      };
      float v = add(output);
      if (kGated) {
        v = Silu(v) * add(output + 8);
      } else {
        if (p.bias) v += p.bias[column];
        v = Activate(v, p.activation);
      }
      const int64_t at = static_cast<int64_t>(out_pairs ? out_pairs[first + row] : offset + first + row) * p.n + column;
      if (p.residual) v += __bfloat162float(p.residual[at]);
      if (p.out_float) {
        p.out_float[at] = v;
      } else {
        p.out[at] = __float2bfloat16_rn(v);
      }
    }
    __syncthreads();
  }
}

// The same sums for more rows than weights can be read past in registers: a block of 64 outputs (kGated: 32 gates and
// their ups) and 64 rows, both brought to shared memory in chunks of 64; four by two warps of 16 outputs and 32 rows.
constexpr int kTileOutputs = 64, kTileColumns = 64, kTileDepth = 64, kTileStages = 4;
constexpr int kTileBytes = kTileOutputs * kTileDepth * 2, kTileStageBytes = 2 * kTileBytes;

// Two rows of a fragment's load lie in one line of banks: they take different halves of it.
__device__ int TileChunkAt(int row, int chunk) {
  return row * kTileDepth * 2 + ((chunk ^ (row & 1) << 2) << 4);
}

template <bool kGated>
__global__ __launch_bounds__(kThreads) void TileKernel(ProductArgs p) {
  Begin();
  extern __shared__ __align__(128) char shared[];
  const int tid = static_cast<int>(threadIdx.x), lane = tid % kWarp, warp = tid / kWarp, g = lane / 4, t = lane % 4;
  const int wm = warp % 4, wn = warp / 4;
  const int n0 = static_cast<int>(blockIdx.y) * (kGated ? kTileOutputs / 2 : kTileOutputs);
  const int first = static_cast<int>(blockIdx.x) * kTileColumns;
  const auto load = [&](int stage, int k0) {
    char* to = shared + stage * kTileStageBytes;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = tid / 8 + i * 32, chunk = tid % 8;
      // A warp's 16 rows: gated, 8 gates and then their ups.
      const int w_row = kGated ? n0 + row / 16 * 8 + row % 8 + (row / 8 % 2) * p.up_row : n0 + row;
      const int x_row = first + row;
      CopyAsync(to + TileChunkAt(row, chunk), p.w + static_cast<int64_t>(w_row) * p.k + k0 + chunk * 8, true);
      CopyAsync(to + kTileBytes + TileChunkAt(row, chunk),
                p.x + static_cast<int64_t>(min(x_row, p.rows - 1)) * p.k + k0 + chunk * 8, x_row < p.rows);
    }
  };
  const int steps = p.k / kTileDepth, segment = SegmentOf(p.k);
  for (int s = 0; s < kTileStages - 1; ++s) {
    if (s < steps) load(s, s * kTileDepth);
    CommitCopies();
  }
  float total[4][4] = {}, acc[4][4] = {};
  int boundary = segment;
  bool begun = false;  // total holds a segment
  const auto close = [&] {
#pragma unroll
    for (int c = 0; c < 4; ++c)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        total[c][i] = begun ? total[c][i] + acc[c][i] : acc[c][i];
        acc[c][i] = 0;
      }
    begun = true;
  };
  for (int step = 0; step < steps; ++step) {
    WaitCopies<kTileStages - 2>();
    __syncthreads();
    if (step + kTileStages - 1 < steps)
      load((step + kTileStages - 1) % kTileStages, (step + kTileStages - 1) * kTileDepth);
    CommitCopies();
    const char* w_tile = shared + step % kTileStages * kTileStageBytes;
    const char* x_tile = w_tile + kTileBytes;
#pragma unroll
    for (int sub = 0; sub < kTileDepth / kChunk; ++sub) {
      if (step * kTileDepth + sub * kChunk == boundary) {
        close();
        boundary += segment;
      }
      const uint4 low = *reinterpret_cast<const uint4*>(w_tile + TileChunkAt(wm * 16 + g, sub * 4 + t));
      const uint4 high = *reinterpret_cast<const uint4*>(w_tile + TileChunkAt(wm * 16 + g + 8, sub * 4 + t));
      const uint32_t one[4] = {low.x, high.x, low.y, high.y}, two[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const uint4 xv = *reinterpret_cast<const uint4*>(x_tile + TileChunkAt(wn * 32 + c * 8 + g, sub * 4 + t));
        Mma(acc[c], one, xv.x, xv.y);
        Mma(acc[c], two, xv.z, xv.w);
      }
    }
  }
  close();
#pragma unroll
  for (int c = 0; c < 4; ++c) {
#pragma unroll
    for (int i = 0; i < (kGated ? 2 : 4); ++i) {
      const int row = first + wn * 32 + c * 8 + 2 * t + i % 2;
      const int column = n0 + (kGated ? wm * 8 : wm * 16) + g + i / 2 * 8;
      if (row >= p.rows || column >= p.n) continue;
      float v = total[c][i];
      if (kGated) {
        v = Silu(v) * total[c][i + 2];
      } else {
        if (p.bias) v += p.bias[column];
        v = Activate(v, p.activation);
      }
      const int64_t at = static_cast<int64_t>(row) * p.n + column;
      if (p.residual) v += __bfloat162float(p.residual[at]);
      if (p.out_float) {
        p.out_float[at] = v;
      } else {
        p.out[at] = __float2bfloat16_rn(v);
      }
    }
  }
}

void LaunchTiles(cudaStream_t stream, const ProductArgs& p) {
  const bool gated = p.up_row > 0;
  const auto kernel = gated ? TileKernel<true> : TileKernel<false>;
  constexpr int kBytes = kTileStages * kTileStageBytes;
  static_assert(kBytes <= 64 << 10, "the least that all chips have");
  Check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes), "preparing a product");
  // Blocks that read the same weights run side by side.
  const dim3 grid(static_cast<unsigned>(CeilDiv(p.rows, kTileColumns)),
                  static_cast<unsigned>(CeilDiv(p.n, gated ? kTileOutputs / 2 : kTileOutputs)));
  LaunchChained(kernel, grid, kThreads, kBytes, stream, p);
}

template <int kColumns>
void Launch(cudaStream_t stream, const NarrowArgs& a, int n, int groups) {
  const bool gated = a.p.up_row > 0;
  const dim3 grid(static_cast<unsigned>(CeilDiv(n, gated ? 8 : 16)), static_cast<unsigned>(groups));
  LaunchChained(gated ? NarrowKernel<kColumns, true> : NarrowKernel<kColumns, false>, grid, kThreads, 0, stream, a);
}

// A warp a sum. With a norm's weight, x is RMS-normalised first, and written to norm_out.
__global__ __launch_bounds__(256) void RouterKernel(RouterArgs a) {
  Begin();
  const int lane = threadIdx.x % kWarp, e = static_cast<int>(blockIdx.x) * 8 + threadIdx.x / kWarp;
  const int64_t row = blockIdx.y;
  const HeldRow x(a.x + row * a.width, a.width);
  float scale = 1;
  if (a.norm) {
    float squares = 0;
    x.For([&](int, float v) { squares += v * v; });
    scale = 1.0f / sqrtf(WarpSum(squares) / static_cast<float>(a.width) + a.eps);
    if (blockIdx.x == 0 && threadIdx.x < kWarp)
      x.Map(a.norm_out + row * a.width, [&](int i, float v) { return v * scale * a.norm[i]; });
  }
  if (e >= a.n) return;
  const float* w = a.w + static_cast<int64_t>(e) * a.k;
  float sum = 0;
  x.For([&](int i, float v) {
    if (a.norm) v = __bfloat162float(__float2bfloat16_rn(v * scale * a.norm[i]));
    sum = fmaf(v, w[i], sum);
  });
  sum = WarpSum(sum);
  if (lane == 0) a.out[row * a.n + e] = Activate(sum + (a.bias ? a.bias[e] : 0), a.activation);
}

}  // namespace

void MultiplyNarrow(cudaStream_t stream, const ProductArgs& args) {
  const NarrowArgs a{.p = args};
  if (args.rows == 0) return;
  if (args.rows <= 8) return Launch<1>(stream, a, args.n, 1);
  if (args.rows <= 16) return Launch<2>(stream, a, args.n, 1);
  if (args.rows <= 32) return Launch<4>(stream, a, args.n, 1);
  LaunchTiles(stream, args);
}

void MultiplyExpertsNarrow(cudaStream_t stream, const ExpertArgs& args, const ProductArgs& beside) {
  const NarrowArgs a{args.product, args.lists, args.expert_stride, args.top_k, args.gathered, args.scattered, beside};
  const int pairs = args.product.rows;
  if (pairs == 0) return;
  const int groups = std::min(pairs, args.experts) + (beside.rows > 0 ? 1 : 0);
  const int n = std::max(args.product.n, beside.n);
  // An expert has at most as many rows as there are, and on average few.
  if (pairs <= 8 * args.top_k) return Launch<1>(stream, a, n, groups);
  if (pairs <= 16 * args.experts) return Launch<2>(stream, a, n, groups);
  Launch<4>(stream, a, n, groups);
}

void MultiplyRouter(cudaStream_t stream, const RouterArgs& args) {
  if (args.rows == 0) return;
  const dim3 grid(static_cast<unsigned>(CeilDiv(args.n, 8)), static_cast<unsigned>(args.rows));
  LaunchChained(RouterKernel, grid, 256, 0, stream, args);
}

}  // namespace quire::cuda
