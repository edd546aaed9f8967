// Products of few rows over many weights: every weight is read once, straight into matrix fragments.
//
// The order of a sum: k is cut into segments of SegmentOf(k); in a segment, chunks of 32 in ascending order, two
// fragments of 16 a chunk; the segments are added in ascending order. Within a chunk, lane t of a row holds k = 8 t ..
// 8 t + 7, which are 16 bytes of x and of w: a fragment's own order of k does not matter, as long as both agree.
#include "backend/cuda/activation.cuh"
#include "backend/cuda/device.cuh"
#include "backend/cuda/products.h"
#include "backend/cuda/runtime.h"

namespace quire::cuda {
namespace {

constexpr int kSegments = 8;  // a warp each
constexpr int kThreads = kSegments * kWarp;
constexpr int kChunk = 32;
constexpr int kAhead = 4;  // chunks of weights under way in a warp

__host__ __device__ constexpr int SegmentOf(int k) {
  return ((k + kSegments - 1) / kSegments + kChunk - 1) / kChunk * kChunk;
}

struct NarrowArgs {
  ProductArgs p;
  ExpertLists lists;  // counts null: plain rows
  int64_t expert_stride;
  int top_k;
  bool gathered, scattered;
};

// One block: 16 outputs (kGated: 8 gates and their ups) of all rows, kColumns x 8 at a time.
template <int kColumns, bool kGated>
__global__ __launch_bounds__(kThreads) void NarrowKernel(NarrowArgs a) {
  __shared__ float sums[kSegments][16][kColumns * 8 + 1];
  const ProductArgs& p = a.p;
  const int lane = threadIdx.x % kWarp, segment = threadIdx.x / kWarp, g = lane / 4, t = lane % 4;
  constexpr int kOutputs = kGated ? 8 : 16;
  const int n0 = static_cast<int>(blockIdx.x) * kOutputs;

  int rows = p.rows;
  int offset = 0;
  const int32_t *x_pairs = nullptr, *out_pairs = nullptr;
  const bf16* w = p.w;
  if (a.lists.counts) {
    const int expert = a.lists.active[blockIdx.y];
    if (expert < 0) return;
    rows = a.lists.counts[expert];
    offset = a.lists.offsets[expert];
    if (a.gathered) x_pairs = a.lists.pairs + offset;
    if (a.scattered) out_pairs = a.lists.pairs + offset;
    w += expert * a.expert_stride;
  }
  const bf16* low = w + static_cast<int64_t>(n0 + g) * p.k + t * 8;
  const bf16* high = low + static_cast<int64_t>(kGated ? p.up_row : 8) * p.k;
  const int begin = segment * SegmentOf(p.k), end = min(p.k, begin + SegmentOf(p.k));

  const int step = a.lists.counts ? kColumns * 8 : kColumns * 8 * static_cast<int>(gridDim.y);
  for (int first = a.lists.counts ? 0 : static_cast<int>(blockIdx.y) * kColumns * 8; first < rows; first += step) {
    const bf16* x[kColumns];
    bool there[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int row = first + c * 8 + g;
      there[c] = row < rows;
      const int64_t x_row = !there[c] ? 0 : x_pairs ? x_pairs[row] / a.top_k : offset + row;
      x[c] = p.x + x_row * p.k + t * 8;
    }
    float acc[kColumns][4] = {};
    for (int k0 = begin; k0 < end; k0 += kAhead * kChunk) {
      uint4 wl[kAhead], wh[kAhead];
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const int k = k0 + u * kChunk;
        wl[u] = k < end ? LoadStream(low + k) : uint4{};
        wh[u] = k < end ? LoadStream(high + k) : uint4{};
      }
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
        for (int s = 1; s < kSegments; ++s) sum += sums[s][which][row];
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

template <int kColumns>
void Launch(cudaStream_t stream, const NarrowArgs& a, int groups) {
  const bool gated = a.p.up_row > 0;
  const dim3 grid(static_cast<unsigned>(CeilDiv(a.p.n, gated ? 8 : 16)), static_cast<unsigned>(groups));
  if (gated) {
    NarrowKernel<kColumns, true><<<grid, kThreads, 0, stream>>>(a);
  } else {
    NarrowKernel<kColumns, false><<<grid, kThreads, 0, stream>>>(a);
  }
  CheckLaunch("product of few rows");
}

constexpr int kRouterRows = 32;  // of a block, wide; by 64 experts, 4 x 4 a thread
constexpr int kRouterExperts = 64;
constexpr int kRouterDepth = 32;
constexpr int kRouterThreads = 128;

__global__ __launch_bounds__(kRouterThreads) void RouterWideKernel(const bf16* x, const float* w, const float* bias,
                                                                   Activation activation, float* out, int rows, int n,
                                                                   int k) {
  __shared__ __align__(16) float xs[kRouterDepth][kRouterRows + 4], ws[kRouterDepth][kRouterExperts + 4];
  const int row0 = static_cast<int>(blockIdx.x) * kRouterRows, n0 = static_cast<int>(blockIdx.y) * kRouterExperts;
  const int r = static_cast<int>(threadIdx.x) / 16 * 4, e = static_cast<int>(threadIdx.x) % 16 * 4;
  float acc[4][4] = {};
  for (int k0 = 0; k0 < k; k0 += kRouterDepth) {
    for (int i = static_cast<int>(threadIdx.x); i < kRouterRows * kRouterDepth / 2; i += kRouterThreads) {
      const int row = i / (kRouterDepth / 2), column = i % (kRouterDepth / 2) * 2;
      const int64_t from = static_cast<int64_t>(min(row0 + row, rows - 1)) * k + k0 + column;
      const float2 v = Unpack(*reinterpret_cast<const uint32_t*>(x + from));
      xs[column][row] = v.x;
      xs[column + 1][row] = v.y;
    }
    for (int i = static_cast<int>(threadIdx.x); i < kRouterExperts * kRouterDepth / 4; i += kRouterThreads) {
      const int row = i / (kRouterDepth / 4), column = i % (kRouterDepth / 4) * 4;
      const int64_t from = static_cast<int64_t>(min(n0 + row, n - 1)) * k + k0 + column;
      const float4 v = *reinterpret_cast<const float4*>(w + from);
      ws[column][row] = v.x;
      ws[column + 1][row] = v.y;
      ws[column + 2][row] = v.z;
      ws[column + 3][row] = v.w;
    }
    __syncthreads();
#pragma unroll 8
    for (int i = 0; i < kRouterDepth; ++i) {
      const float4 a = *reinterpret_cast<const float4*>(&xs[i][r]), b = *reinterpret_cast<const float4*>(&ws[i][e]);
      const float of_row[4] = {a.x, a.y, a.z, a.w}, of_expert[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int p = 0; p < 4; ++p)
#pragma unroll
        for (int q = 0; q < 4; ++q) acc[p][q] = fmaf(of_row[p], of_expert[q], acc[p][q]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int p = 0; p < 4; ++p)
#pragma unroll
    for (int q = 0; q < 4; ++q)
      if (row0 + r + p < rows && n0 + e + q < n)
        out[static_cast<int64_t>(row0 + r + p) * n + n0 + e + q] =
            Activate(acc[p][q] + (bias ? bias[n0 + e + q] : 0), activation);
}

// A warp a sum.
__global__ __launch_bounds__(256) void RouterNarrowKernel(const bf16* x, const float* w, const float* bias,
                                                          Activation activation, float* out, int n, int k) {
  const int lane = threadIdx.x % kWarp, e = static_cast<int>(blockIdx.x) * 8 + threadIdx.x / kWarp;
  if (e >= n) return;
  const int64_t row = blockIdx.y;
  float sum = 0;
  for (int i = lane * 2; i < k; i += 64) {
    const float2 a = Unpack(*reinterpret_cast<const uint32_t*>(x + row * k + i));
    const float2 b = *reinterpret_cast<const float2*>(w + static_cast<int64_t>(e) * k + i);
    sum += a.x * b.x;
    sum += a.y * b.y;
  }
  sum = WarpSum(sum);
  if (lane == 0) out[row * n + e] = Activate(sum + (bias ? bias[e] : 0), activation);
}

}  // namespace

void MultiplyNarrow(cudaStream_t stream, const ProductArgs& args) {
  const NarrowArgs a{.p = args};
  if (args.rows == 0) return;
  if (args.rows <= 8) return Launch<1>(stream, a, 1);
  if (args.rows <= 16) return Launch<2>(stream, a, 1);
  if (args.rows <= 32) return Launch<4>(stream, a, 1);
  Launch<8>(stream, a, static_cast<int>(CeilDiv(args.rows, 64)));
}

void MultiplyExpertsNarrow(cudaStream_t stream, const ExpertArgs& args) {
  const NarrowArgs a{args.product, args.lists,    args.expert_stride,
                     args.top_k,   args.gathered, args.scattered};
  const int pairs = args.product.rows;
  if (pairs == 0) return;
  const int groups = pairs < args.experts ? pairs : args.experts;
  // An expert cannot be chosen twice by a row: as many rows as there are, at most.
  if (pairs <= 8 * args.experts / 8) return Launch<1>(stream, a, groups);
  if (pairs <= 16 * args.experts) return Launch<2>(stream, a, groups);
  Launch<4>(stream, a, groups);
}

void MultiplyRouter(cudaStream_t stream, const bf16* x, const float* w, const float* bias, Activation activation,
                    float* out, int rows, int n, int k, bool narrow) {
  if (rows == 0) return;
  if (narrow) {
    RouterNarrowKernel<<<dim3(static_cast<unsigned>(CeilDiv(n, 8)), static_cast<unsigned>(rows)), 256, 0, stream>>>(
        x, w, bias, activation, out, n, k);
  } else {
    RouterWideKernel<<<dim3(static_cast<unsigned>(CeilDiv(rows, kRouterRows)), static_cast<unsigned>(CeilDiv(n, kRouterExperts))),
                       kRouterThreads, 0, stream>>>(x, w, bias, activation, out, rows, n, k);
  }
  CheckLaunch("router");
}

}  // namespace quire::cuda
