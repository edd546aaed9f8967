// Products of many rows on sm_90: a producer warp brings tiles by bulk tensor copies, and two warpgroups multiply them
// with wgmma (PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate"), tile by tile in turn: while one
// writes its results, the other has the tensor cores. Blocks stay and take tile after tile.
#include <cuda.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "backend/cuda/activation.cuh"
#include "backend/cuda/device.cuh"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/products.h"
#include "backend/cuda/runtime.h"
#include "base/error.h"

namespace quire::cuda {
namespace {

constexpr int kRows = kTileRows;             // of x in a tile
constexpr int kColumns = 128;                // of w
constexpr int kDepth = 64;                   // of k in a stage: 128 bytes, the widest swizzle
constexpr int kConsumers = 2;                // warpgroups
constexpr int kGroup = 128;                  // threads of a warpgroup
[[maybe_unused]] constexpr int kHalves = 2;  // of a tile's rows: 64 are the most of one wgmma
constexpr int kThreads = (kConsumers + 1) * kGroup;
constexpr int kStages = 6;
constexpr int kStageBytes = (kRows + kColumns) * kDepth * 2;

enum class Epilogue { kPlain, kGelu, kQuickGelu, kGated };

struct HopperArgs {
  ProductArgs p;
  const int4* tiles;     // as in wide.cu; null: tile i holds rows from kRows i on
  const int32_t* pairs;  // row of out by row of x; null: the same
  int expert_rows;       // from an expert's first row of w to the next one's
  int row_tiles, column_tiles;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

struct Tile {
  int first, count, w_row, n0;  // rows of x, and how many there are; first row of w; first output
};

template <bool kGated>
__device__ bool TileOf(const HopperArgs& a, int index, Tile* tile) {
  const int row_tile = index / a.column_tiles;
  tile->n0 = index % a.column_tiles * (kGated ? kColumns / 2 : kColumns);
  tile->w_row = tile->n0;
  tile->first = row_tile * kRows;
  tile->count = min(kRows, a.p.rows - tile->first);
  if (!a.tiles) return true;
  const int4 t = a.tiles[row_tile];
  tile->first = t.x, tile->count = t.y;
  tile->w_row += t.z * a.expert_rows;
  return t.z >= 0;
}

// One warpgroup's m64n128 results, rows row0 + 0..63 of the tile. All that is read comes in one go, before any of it is
// used.
template <Epilogue kEpilogue>
__device__ void Store(const HopperArgs& a, const Tile& tile, int row0, const float2 (&bias)[kColumns / 8],
                      const float (&d)[64]) {
  const ProductArgs& p = a.p;
  constexpr bool kGated = kEpilogue == Epilogue::kGated;
  constexpr int kBlocks = kGated ? kColumns / 16 : kColumns / 8;  // of eight outputs
  const int thread = threadIdx.x % kGroup, warp = thread / kWarp, lane = thread % kWarp, g = lane / 4, t = lane % 4;
  const bool odd = t % 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = row0 + warp * 16 + half * 8 + g;
    const bool there = row < tile.count;
    const int64_t out_row = a.pairs && there ? a.pairs[tile.first + row] : tile.first + row;
    const int64_t base = out_row * p.n + tile.n0;
    const int columns = there ? p.n - tile.n0 : 0;
    uint32_t residual[kBlocks] = {};
    if (p.residual)
#pragma unroll
      for (int j = 0; j < kBlocks; ++j)
        if (j * 8 < columns) residual[j] = *reinterpret_cast<const uint32_t*>(p.residual + base + j * 8 + 2 * t);
          // Two neighbouring lanes exchange a pair, so that four lanes write 32 bytes at once.
#pragma unroll
    for (int j = 0; j < kBlocks; j += 2) {
      float2 v[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        v[i] = {d[(j + i) * 4 + half * 2], d[(j + i) * 4 + half * 2 + 1]};
        if constexpr (kGated) {
          v[i].x = Silu(v[i].x) * d[(j + i + 8) * 4 + half * 2];
          v[i].y = Silu(v[i].y) * d[(j + i + 8) * 4 + half * 2 + 1];
        } else {
          constexpr Activation kActivation = kEpilogue == Epilogue::kGelu        ? Activation::kGelu
                                             : kEpilogue == Epilogue::kQuickGelu ? Activation::kQuickGelu
                                                                                 : Activation::kNone;
          const float2 r = Unpack(residual[j + i]);
          v[i].x = Activate(v[i].x + bias[j + i].x, kActivation) + r.x;
          v[i].y = Activate(v[i].y + bias[j + i].y, kActivation) + r.y;
        }
      }
      if (p.out_float) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if ((j + i) * 8 < columns) *reinterpret_cast<float2*>(p.out_float + base + (j + i) * 8 + 2 * t) = v[i];
        continue;
      }
      const uint32_t pairs[2] = {Pack(v[0].x, v[0].y), Pack(v[1].x, v[1].y)};
      const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, odd ? pairs[0] : pairs[1], 1);
      if ((j + odd) * 8 < columns)
        *reinterpret_cast<uint2*>(p.out + base + (j + odd) * 8 + 2 * (t - odd)) =
            odd ? uint2{other, pairs[1]} : uint2{pairs[0], other};
    }
  }
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

template <Epilogue kEpilogue>
__global__ __launch_bounds__(kThreads, 1) void HopperKernel(const __grid_constant__ CUtensorMap x_map,
                                                            const __grid_constant__ CUtensorMap w_map, HopperArgs a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr bool kGated = kEpilogue == Epilogue::kGated;
  extern __shared__ __align__(1024) char shared[];
  __shared__ __align__(8) uint64_t barriers[2 * kStages + kConsumers];
  const uint32_t data = (SharedAddress(shared) + 1023) & ~1023u, full = SharedAddress(barriers),
                 empty = full + kStages * 8, turns = empty + kStages * 8;
  const int group = threadIdx.x / kGroup;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      InitBarrier(full + s * 8, 1);
      InitBarrier(empty + s * 8, 1);
    }
    for (int c = 0; c < kConsumers; ++c) InitBarrier(turns + c * 8, 1);
    FenceShared();
  }
  __syncthreads();
  const int tiles = a.row_tiles * a.column_tiles, steps = a.p.k / kDepth;
  // Step `at` of all steps of this block lies in stage at % kStages, for the (at / kStages)-th time.
  int at = 0;
  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x != 0) return;
    for (int index = static_cast<int>(blockIdx.x); index < tiles; index += static_cast<int>(gridDim.x)) {
      Tile tile;
      if (!TileOf<kGated>(a, index, &tile)) continue;
      const int second = kGated ? tile.w_row + a.p.up_row : tile.w_row + kColumns / 2;
      for (int step = 0; step < steps; ++step, ++at) {
        const int stage = at % kStages;
        Wait(empty + stage * 8, (at / kStages & 1) ^ 1);
        const uint32_t to = data + stage * kStageBytes, barrier = full + stage * 8;
        ExpectBytes(barrier, kStageBytes);
        CopyBox(to, &x_map, barrier, step * kDepth, tile.first);
        CopyBox(to + kRows * kDepth * 2, &w_map, barrier, step * kDepth, tile.w_row);
        CopyBox(to + (kRows + kColumns / 2) * kDepth * 2, &w_map, barrier, step * kDepth, second);
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int me = group - 1, other = 1 - me;
    int turn = 0, done = 0;  // whose tile it is; tiles of mine
    for (int index = static_cast<int>(blockIdx.x); index < tiles; index += static_cast<int>(gridDim.x)) {
      Tile tile;
      if (!TileOf<kGated>(a, index, &tile)) continue;
      const bool mine = turn == me;
      turn ^= 1;
      if (!mine) {
        at += steps;
        continue;
      }
      // Not before the other has waited for all of its steps: a barrier tells only one phase from the next.
      if (me == 1 || done > 0) Wait(turns + me * 8, (me == 1 ? done : done - 1) & 1);
      ++done;
      float d[kHalves][64];
      for (int step = 0; step < steps; ++step, ++at) {
        const int stage = at % kStages;
        Wait(full + stage * 8, at / kStages & 1);
        const uint32_t from = data + stage * kStageBytes;
        const uint64_t x = Descriptor(from), w = Descriptor(from + kRows * kDepth * 2);
        BeginProducts();
#pragma unroll
        for (int ks = 0; ks < kDepth / 16; ++ks)
#pragma unroll
          for (int h = 0; h < kHalves; ++h)
            MultiplyAsync(d[h], x + h * (64 * kDepth * 2 >> 4) + ks * 2, w + ks * 2, step > 0 || ks > 0);
        CommitProducts();
        if (step == 0) continue;
        WaitProducts<1>();  // the step before
        if (threadIdx.x % kGroup == 0) Arrive(empty + (at - 1) % kStages * 8);
      }
      if (threadIdx.x % kGroup == 0) Arrive(turns + other * 8);
      WaitProducts<0>();
      if (threadIdx.x % kGroup == 0) Arrive(empty + (at - 1) % kStages * 8);
#pragma unroll
      for (int h = 0; h < kHalves; ++h) Settle(d[h]);
      float2 bias[kColumns / 8] = {};
      if (a.p.bias)
#pragma unroll
        for (int j = 0; j < kColumns / 8; ++j) {
          const int column = tile.n0 + j * 8 + 2 * (static_cast<int>(threadIdx.x) % 4);
          if (column < a.p.n) bias[j] = *reinterpret_cast<const float2*>(a.p.bias + column);
        }
#pragma unroll
      for (int h = 0; h < kHalves; ++h) Store<kEpilogue>(a, tile, h * 64, bias, d[h]);
    }
  }
#endif
}

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode FindEncode() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result) !=
          cudaSuccess ||
      result != cudaDriverEntryPointSuccess)
    return nullptr;
  return reinterpret_cast<Encode>(found);
}

// Rows of k bf16 in boxes of `box_rows` rows x kDepth.
CUtensorMap MapOf(Encode encode, const bf16* data, int64_t rows, int k, int box_rows) {
  CUtensorMap map;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(k), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(k) * 2};
  const cuuint32_t box[] = {kDepth, static_cast<cuuint32_t>(box_rows)}, step[] = {1, 1};
  const CUresult result = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<bf16*>(data), sizes, strides,
                                 box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw Error(ErrorKind::kInternal, "describing a tensor to the device failed with " + std::to_string(result));
  return map;
}

struct Support {
  Encode encode = nullptr;  // null: not on this chip
  int processors = 0;
};

const Support& TheSupport() {
  static const Support support = [] {
    Support s;
    int device = 0, major = 0;
    cudaFuncAttributes attributes{};
    const char* family = std::getenv("QUIRE_CUDA_FAMILY");
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&s.processors, cudaDevAttrMultiProcessorCount, device);
    if (major != 9 || (family && std::string(family) == "generic")) return s;
    // Code for another chip, compiled by the driver, has an empty kernel.
    if (cudaFuncGetAttributes(&attributes, HopperKernel<Epilogue::kPlain>) != cudaSuccess ||
        attributes.ptxVersion != 90)
      return s;
    s.encode = FindEncode();
    return s;
  }();
  return support;
}

template <Epilogue kEpilogue>
void Launch(cudaStream_t stream, HopperArgs a, int64_t w_rows) {
  const Support& support = TheSupport();
  constexpr int kBytes = kStages * kStageBytes + 1024;
  static const cudaError_t prepared =
      cudaFuncSetAttribute(HopperKernel<kEpilogue>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  Check(prepared, "preparing a product");
  a.column_tiles = static_cast<int>(CeilDiv(a.p.n, kEpilogue == Epilogue::kGated ? kColumns / 2 : kColumns));
  const int blocks = std::min(a.row_tiles * a.column_tiles, support.processors);
  HopperKernel<kEpilogue>
      <<<blocks, kThreads, kBytes, stream>>>(MapOf(support.encode, a.p.x, a.p.rows, a.p.k, kRows),
                                             MapOf(support.encode, a.p.w, w_rows, a.p.k, kColumns / 2), a);
  CheckLaunch("product of many rows");
}

void LaunchTiles(cudaStream_t stream, const HopperArgs& a, int64_t w_rows) {
  if (a.p.up_row > 0) return Launch<Epilogue::kGated>(stream, a, w_rows);
  switch (a.p.activation) {
    case Activation::kNone:
      return Launch<Epilogue::kPlain>(stream, a, w_rows);
    case Activation::kGelu:
      return Launch<Epilogue::kGelu>(stream, a, w_rows);
    case Activation::kQuickGelu:
      return Launch<Epilogue::kQuickGelu>(stream, a, w_rows);
  }
}

bool Fits(const ProductArgs& p) {
  return TheSupport().encode && p.n % 8 == 0;
}

}  // namespace

bool MultiplyHopper(cudaStream_t stream, const ProductArgs& args) {
  if (!Fits(args)) return false;
  const HopperArgs a{.p = args, .row_tiles = static_cast<int>(CeilDiv(args.rows, kRows))};
  LaunchTiles(stream, a, args.up_row > 0 ? args.up_row + args.n : args.n);
  return true;
}

bool MultiplyExpertsHopper(cudaStream_t stream, const ExpertArgs& args) {
  if (!Fits(args.product) || args.gathered) return false;
  const int expert_rows = static_cast<int>(args.expert_stride / args.product.k);
  const HopperArgs a{.p = args.product,
                     .tiles = args.lists.tiles,
                     .pairs = args.scattered ? args.lists.pairs : nullptr,
                     .expert_rows = expert_rows,
                     .row_tiles = args.lists.tile_count};
  LaunchTiles(stream, a, int64_t{expert_rows} * args.experts);
  return true;
}

}  // namespace quire::cuda
