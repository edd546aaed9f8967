// Attention of the vision towers.
#include <cmath>

#include "backend/cuda/attention.h"
#include "backend/cuda/flash.cuh"

namespace quire::cuda {
namespace {

// Blocks: (tiles of queries, heads, windows of all views).
struct GridPolicy {
  GridArgs a;
  int windows_x, windows_y;
  unsigned inverse_side;  // 2^20 / side_x, rounded up
  int bias_stride;        // of a query's relative terms, in elements
  float scale;
  int64_t value_offset;
  int dim, keys;
  char* extra;

  int first, head, b, y0, x0;  // of the block

  __device__ const void* somewhere() const { return a.qkv; }
  __device__ bool Begin() {
    first = static_cast<int>(blockIdx.x) * kQueries;
    head = static_cast<int>(blockIdx.y);
    const int window = static_cast<int>(blockIdx.z);
    x0 = window % windows_x * a.side_x;
    y0 = window / windows_x % windows_y * a.side_y;
    b = window / windows_x / windows_y;
    return true;
  }
  __device__ int RowOf(int key) const { return static_cast<int>((static_cast<unsigned>(key) * inverse_side) >> 20); }
  __device__ const bf16* Token(int i, int part) const {
    const int y = RowOf(i), gy = y0 + y, gx = x0 + i - y * a.side_x, c = a.heads * a.dim;
    const bf16* row = gy < a.height && gx < a.width
                          ? a.qkv + (static_cast<int64_t>(b * a.height + gy) * a.width + gx) * 3 * c
                          : a.pad;
    return row + part * c + head * a.dim;
  }
  __device__ const bf16* Query(int row) const { return first + row < keys ? Token(first + row, 0) : nullptr; }
  __device__ const bf16* Key(int key) const { return Token(key, 1); }
  __device__ int Limit(int) const { return keys; }
  __device__ bf16* Out(int row) const {
    const int i = first + row, y = RowOf(i), gy = y0 + y, gx = x0 + i - y * a.side_x;
    if (i >= keys || gy >= a.height || gx >= a.width) return nullptr;
    return a.out + (static_cast<int64_t>(b * a.height + gy) * a.width + gx) * a.heads * a.dim + head * a.dim;
  }

  // The products of the queries with both tables, in shared memory: [query][rows, then columns].
  template <int kDim>
  __device__ void Prologue(const uint32_t (&q)[kDim / 16][4], char* scratch) {
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, g = lane / 4, t = lane % 4;
    auto* terms = reinterpret_cast<__half*>(extra);
    for (int table = 0; table < 2; ++table) {
      const int count = 2 * (table ? a.side_x : a.side_y) - 1, offset = table ? 2 * a.side_y - 1 : 0;
      const bf16* values = table ? a.columns : a.rows;
      for (int from = 0; from < count; from += 64) {
        LoadTile<kDim>(scratch, a.dim, a.qkv, [&](int r) {
          return from + r < count ? values + static_cast<int64_t>(from + r) * a.table_stride : nullptr;
        });
        CommitCopies();
        WaitCopies<0>();
        __syncthreads();
        float s[8][4];
        MultiplyTile<kDim>(q, SharedAddress(scratch), s);
#pragma unroll
        for (int j = 0; j < 8; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int column = from + j * 8 + 2 * t + i % 2, row = warp * 16 + g + i / 2 * 8;
            if (column < count) terms[row * bias_stride + offset + column] = __float2half_rn(s[j][i] * kLog2E);
          }
        __syncthreads();
      }
    }
  }
  __device__ float Bias(int row, int key) const {
    const auto* terms = reinterpret_cast<const __half*>(extra) + row * bias_stride;
    const int i = min(first + row, keys - 1), k = min(key, keys - 1);
    const int qy = RowOf(i), ky = RowOf(k), qx = i - qy * a.side_x, kx = k - ky * a.side_x;
    return __half2float(terms[qy - ky + a.side_y - 1]) + __half2float(terms[2 * a.side_y - 1 + qx - kx + a.side_x - 1]);
  }
};

// Blocks: (tiles of queries, heads, sequences).
struct PrefixPolicy {
  PrefixArgs a;
  float scale;
  int64_t value_offset;
  int dim, keys;
  char* extra;

  int first, head, kv_head;
  const bf16* rows;

  __device__ const void* somewhere() const { return a.qkv; }
  __device__ int64_t width() const { return static_cast<int64_t>(a.heads + 2 * a.kv_heads) * a.dim; }
  __device__ bool Begin() {
    first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kQueries;  // the longest first
    head = static_cast<int>(blockIdx.y);
    kv_head = head / (a.heads / a.kv_heads);
    rows = a.qkv + blockIdx.z * a.tokens * width();
    keys = max(a.prefix, min(a.tokens, first + kQueries));
    return true;
  }
  __device__ const bf16* Query(int row) const {
    return first + row < a.tokens ? rows + (first + row) * width() + head * a.dim : nullptr;
  }
  __device__ const bf16* Key(int key) const { return rows + key * width() + (a.heads + kv_head) * a.dim; }
  __device__ int Limit(int row) const { return min(keys, max(a.prefix, first + row + 1)); }
  __device__ bf16* Out(int row) const {
    if (first + row >= a.tokens) return nullptr;
    return a.out + ((static_cast<int64_t>(blockIdx.z) * a.tokens + first + row) * a.heads + head) * a.dim;
  }
  template <int kDim>
  __device__ void Prologue(const uint32_t (&)[kDim / 16][4], char*) {}
  __device__ float Bias(int, int) const { return 0; }
};

}  // namespace

void AttendGrid(cudaStream_t stream, const GridArgs& args) {
  GridPolicy policy{.a = args};
  policy.windows_x = static_cast<int>(CeilDiv(args.width, args.side_x));
  policy.windows_y = static_cast<int>(CeilDiv(args.height, args.side_y));
  policy.inverse_side = static_cast<unsigned>(CeilDiv(1 << 20, args.side_x));
  policy.bias_stride = ((args.side_x + args.side_y) | 1) * 2;  // an odd number of words: rows in different banks
  policy.scale = 1.0f / std::sqrt(static_cast<float>(args.dim));
  policy.value_offset = int64_t{args.heads} * args.dim;
  policy.dim = args.dim;
  policy.keys = args.side_x * args.side_y;
  const dim3 grid(static_cast<unsigned>(CeilDiv(policy.keys, kQueries)), static_cast<unsigned>(args.heads),
                  static_cast<unsigned>(args.batch * policy.windows_x * policy.windows_y));
  const int extra = kQueries * policy.bias_stride * 2;
  if (args.dim <= 64) {
    LaunchFlash<64>(stream, policy, grid, extra);
  } else {
    LaunchFlash<128>(stream, policy, grid, extra);
  }
}

void AttendPrefix(cudaStream_t stream, const PrefixArgs& args) {
  PrefixPolicy policy{.a = args};
  policy.scale = 1.0f / std::sqrt(static_cast<float>(args.dim));
  policy.value_offset = int64_t{args.kv_heads} * args.dim;
  policy.dim = args.dim;
  const dim3 grid(static_cast<unsigned>(CeilDiv(args.tokens, kQueries)), static_cast<unsigned>(args.heads),
                  static_cast<unsigned>(args.batch));
  if (args.dim <= 64) {
    LaunchFlash<64>(stream, policy, grid, 0);
  } else {
    LaunchFlash<128>(stream, policy, grid, 0);
  }
}

}  // namespace quire::cuda
