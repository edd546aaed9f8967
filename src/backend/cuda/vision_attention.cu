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
  int term_stride;        // of a query's relative terms, in elements
  int column_terms;       // where those of the columns begin
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
  __device__ void Turn(int) {}
  __device__ const bf16* Key(int key) const { return Token(key, 1); }
  __device__ int Limit(int) const { return keys; }
  __device__ bf16* Out(int row) const {
    const int i = first + row, y = RowOf(i), gy = y0 + y, gx = x0 + i - y * a.side_x;
    if (i >= keys || gy >= a.height || gx >= a.width) return nullptr;
    return a.out + (static_cast<int64_t>(b * a.height + gy) * a.width + gx) * a.heads * a.dim + head * a.dim;
  }

  // Row r of both tables, one behind the other.
  __device__ int TableRows() const { return 2 * (a.side_y + a.side_x) - 2; }
  __device__ const bf16* TableRow(int r) const {
    const int rows = 2 * a.side_y - 1;
    if (r >= TableRows()) return nullptr;
    return r < rows ? a.rows + static_cast<int64_t>(r) * a.table_stride
                    : a.columns + static_cast<int64_t>(r - rows) * a.table_stride;
  }
  template <int kDim>
  __device__ void Begin(char* scratch) {
    LoadTile<kDim>(scratch, a.dim, a.qkv, [&](int r) { return TableRow(r); });
  }
  // The products of the queries with both tables, as far as their windows reach, in shared memory:
  // [query][by row of the key, then by its column], in units of log 2.
  template <int kDim>
  __device__ void Prologue(const Queries<kDim>& q, char* scratch) {
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, g = lane / 4, t = lane % 4;
    auto* terms = reinterpret_cast<__half*>(extra);
    for (int from = 0; from < TableRows(); from += 64) {
      if (from > 0) {
        __syncthreads();
        LoadTile<kDim>(scratch, a.dim, a.qkv, [&](int r) { return TableRow(from + r); });
        CommitCopies();
        WaitCopies<0>();
        Publish();
      }
      float s[32] = {};
      MultiplyTile<kDim>(q, SharedAddress(scratch), s);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = warp * 16 + g + h * 8, i = min(first + row, keys - 1), y = RowOf(i), x = i - y * a.side_x;
#pragma unroll
        for (int j = 0; j < 8; ++j)
#pragma unroll
          for (int k = 0; k < 2; ++k) {
            const int column = from + j * 8 + 2 * t + k, rows = 2 * a.side_y - 1;
            const bool of_rows = column < rows;
            const int side = of_rows ? a.side_y : a.side_x;
            const int there = (of_rows ? y : x) + side - 1 - (of_rows ? column : column - rows);
            if (there >= 0 && there < side)
              terms[row * term_stride + (of_rows ? 0 : column_terms) + there] =
                  __float2half_rn(s[4 * j + 2 * h + k] * kLog2E);
          }
      }
    }
    __syncthreads();
  }
  __device__ void Scale(float (&s)[32], const int (&row)[2], int first_key, float scale_log2) const {
    const auto* terms = reinterpret_cast<const __half*>(extra);
    const __half* of_row[2] = {terms + row[0] * term_stride, terms + row[1] * term_stride};
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int key = first_key + j * 8 + 2 * t, y = min(RowOf(key), a.side_y - 1);
      const int x = min(key - y * a.side_x, a.side_x - 1);
      if (a.side_x % 2 == 0) {  // a pair of keys lies in one row
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const __half2 by_column = *reinterpret_cast<const __half2*>(of_row[h] + column_terms + (x & ~1));
          const float2 term = __half22float2(__hadd2(__half2half2(of_row[h][y]), by_column));
          s[4 * j + 2 * h] = fmaf(s[4 * j + 2 * h], scale_log2, term.x);
          s[4 * j + 2 * h + 1] = fmaf(s[4 * j + 2 * h + 1], scale_log2, term.y);
        }
      } else {
        const int y2 = min(RowOf(key + 1), a.side_y - 1), x2 = min(key + 1 - y2 * a.side_x, a.side_x - 1);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const __half* c = of_row[h] + column_terms;
          s[4 * j + 2 * h] = fmaf(s[4 * j + 2 * h], scale_log2, __half2float(__hadd(of_row[h][y], c[x])));
          s[4 * j + 2 * h + 1] = fmaf(s[4 * j + 2 * h + 1], scale_log2, __half2float(__hadd(of_row[h][y2], c[x2])));
        }
      }
    }
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
  __device__ void Turn(int) {}
  __device__ const bf16* Key(int key) const { return rows + key * width() + (a.heads + kv_head) * a.dim; }
  __device__ int Limit(int row) const { return min(keys, max(a.prefix, first + row + 1)); }
  __device__ bf16* Out(int row) const {
    if (first + row >= a.tokens) return nullptr;
    return a.out + ((static_cast<int64_t>(blockIdx.z) * a.tokens + first + row) * a.heads + head) * a.dim;
  }
  template <int kDim>
  __device__ void Begin(char*) {}
  template <int kDim>
  __device__ void Prologue(const Queries<kDim>&, char*) {}
  __device__ void Scale(float (&s)[32], const int (&)[2], int, float scale_log2) const { ScaleAlone(s, scale_log2); }
};

}  // namespace

void AttendGrid(cudaStream_t stream, const GridArgs& args) {
  GridPolicy policy{.a = args};
  policy.windows_x = static_cast<int>(CeilDiv(args.width, args.side_x));
  policy.windows_y = static_cast<int>(CeilDiv(args.height, args.side_y));
  policy.inverse_side = static_cast<unsigned>(CeilDiv(1 << 20, args.side_x));
  policy.column_terms = args.side_y + args.side_y % 2;
  policy.term_stride = ((policy.column_terms + args.side_x + 1) / 2 | 1) * 2;  // odd in words: rows in different banks
  policy.scale = 1.0f / std::sqrt(static_cast<float>(args.dim));
  policy.value_offset = int64_t{args.heads} * args.dim;
  policy.dim = args.dim;
  policy.keys = args.side_x * args.side_y;
  const dim3 grid(static_cast<unsigned>(CeilDiv(policy.keys, kQueries)), static_cast<unsigned>(args.heads),
                  static_cast<unsigned>(args.batch * policy.windows_x * policy.windows_y));
  const int extra = kQueries * policy.term_stride * 2;
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
