// Products of many rows on sm_90: a producer warp brings tiles by bulk tensor copies, and two warpgroups multiply them
// with wgmma (PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate"), tile by tile in turn: while one
// writes its results, the other has the tensor cores. Blocks stay and take tile after tile.
#include <cuda.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "backend/cuda/activation.cuh"
#include "backend/cuda/device.cuh"
#include "backend/cuda/products.h"
#include "backend/cuda/runtime.h"
#include "base/error.h"

namespace quire::cuda {
namespace {

constexpr int kRows = kTileRows;  // of x in a tile
constexpr int kColumns = 128;     // of w
constexpr int kDepth = 64;        // of k in a stage: 128 bytes, the widest swizzle
constexpr int kConsumers = 2;     // warpgroups
constexpr int kGroup = 128;       // threads of a warpgroup
constexpr int kHalves = 2;        // of a tile's rows: 64 are the most of one wgmma
constexpr int kThreads = (kConsumers + 1) * kGroup;
constexpr int kStages = 6;
constexpr int kStageBytes = (kRows + kColumns) * kDepth * 2;

struct HopperArgs {
  ProductArgs p;
  const int4* tiles;     // as in wide.cu; null: tile i holds rows from kRows i on
  const int32_t* pairs;  // row of out by row of x; null: the same
  int expert_rows;       // from an expert's first row of w to the next one's
  int row_tiles, column_tiles;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

__device__ void InitBarrier(uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}
__device__ void ExpectBytes(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ void Wait(uint32_t barrier, int parity) {
  asm volatile(
      "{\n.reg .pred done;\nAGAIN:\n"
      "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n@!done bra AGAIN;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
__device__ void CopyTile(uint32_t to, const CUtensorMap* map, uint32_t barrier, int k, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(k), "r"(row)
      : "memory");
}

// K-major, rows of 128 bytes swizzled over 1024.
__device__ uint64_t Descriptor(uint32_t address) {
  return (uint64_t{1} << 62) | (uint64_t{64} << 32) | (uint64_t{1} << 16) | ((address & 0x3FFFF) >> 4);
}

#define QUIRE_R8(i) "%" #i "0,%" #i "1,%" #i "2,%" #i "3,%" #i "4,%" #i "5,%" #i "6,%" #i "7,%" #i "8,%" #i "9"
__device__ void MultiplyAsync(float (&d)[64], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9," QUIRE_R8(1) "," QUIRE_R8(2) "," QUIRE_R8(3) "," QUIRE_R8(4) "," QUIRE_R8(
          5) ",%60,%61,%62,%63}, %64, %65, p, 1, 1, 0, 0;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]),
        "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]),
        "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
        "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),
        "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "l"(a), "l"(b), "r"(add));
}
#undef QUIRE_R8
__device__ void BeginProducts() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ void CommitProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kLeft>
__device__ void WaitProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

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

// One warpgroup's m64n128 results, rows row0 + 0..63 of the tile.
template <bool kGated>
__device__ void Store(const HopperArgs& a, const Tile& tile, int row0, const float (&d)[64]) {
  const ProductArgs& p = a.p;
  const int thread = threadIdx.x % kGroup, warp = thread / kWarp, lane = thread % kWarp, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = row0 + warp * 16 + half * 8 + g;
    const bool there = row < tile.count;
    const int64_t out_row = a.pairs && there ? a.pairs[tile.first + row] : tile.first + row;
    const int64_t base = out_row * p.n;
    // Two neighbouring lanes exchange a pair, so that four lanes write 32 bytes at once.
#pragma unroll
    for (int j = 0; j < (kGated ? 8 : 16); j += 2) {
      uint32_t pairs[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int column = tile.n0 + (j + i) * 8 + 2 * t;
        float low = d[(j + i) * 4 + half * 2], high = d[(j + i) * 4 + half * 2 + 1];
        if (kGated) {
          low = Silu(low) * d[(j + i + 8) % 16 * 4 + half * 2];
          high = Silu(high) * d[(j + i + 8) % 16 * 4 + half * 2 + 1];
        } else if (column < p.n) {
          if (p.bias) {
            const float2 bias = *reinterpret_cast<const float2*>(p.bias + column);
            low += bias.x, high += bias.y;
          }
          low = Activate(low, p.activation);
          high = Activate(high, p.activation);
          if (p.residual && there) {
            const float2 r = Unpack(*reinterpret_cast<const uint32_t*>(p.residual + base + column));
            low += r.x, high += r.y;
          }
        }
        pairs[i] = Pack(low, high);
      }
      const bool odd = t % 2;
      const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, pairs[odd ? 0 : 1], 1);
      const int column = tile.n0 + (j + odd) * 8 + 2 * (t - odd);
      if (there && column < p.n)
        *reinterpret_cast<uint2*>(p.out + base + column) = odd ? uint2{other, pairs[1]} : uint2{pairs[0], other};
    }
  }
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

template <bool kGated>
__global__ __launch_bounds__(kThreads, 1) void HopperKernel(const __grid_constant__ CUtensorMap x_map,
                                                            const __grid_constant__ CUtensorMap w_map, HopperArgs a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) char shared[];
  __shared__ __align__(8) uint64_t barriers[2 * kStages];
  const uint32_t data = (SharedAddress(shared) + 1023) & ~1023u, full = SharedAddress(barriers),
                 empty = full + kStages * 8;
  const int group = threadIdx.x / kGroup;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      InitBarrier(full + s * 8, 1);
      InitBarrier(empty + s * 8, 1);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
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
        CopyTile(to, &x_map, barrier, step * kDepth, tile.first);
        CopyTile(to + kRows * kDepth * 2, &w_map, barrier, step * kDepth, tile.w_row);
        CopyTile(to + (kRows + kColumns / 2) * kDepth * 2, &w_map, barrier, step * kDepth, second);
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    int turn = 0;
    for (int index = static_cast<int>(blockIdx.x); index < tiles; index += static_cast<int>(gridDim.x)) {
      Tile tile;
      if (!TileOf<kGated>(a, index, &tile)) continue;
      const bool mine = turn == group - 1;
      turn ^= 1;
      if (!mine) {
        at += steps;
        continue;
      }
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
      WaitProducts<0>();
      if (threadIdx.x % kGroup == 0) Arrive(empty + (at - 1) % kStages * 8);
#pragma unroll
      for (int h = 0; h < kHalves; ++h) Store<kGated>(a, tile, h * 64, d[h]);
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
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<bf16*>(data), sizes, strides, box, step,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
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
    if (cudaFuncGetAttributes(&attributes, HopperKernel<false>) != cudaSuccess || attributes.ptxVersion != 90)
      return s;
    s.encode = FindEncode();
    return s;
  }();
  return support;
}

template <bool kGated>
void Launch(cudaStream_t stream, HopperArgs a, int64_t w_rows) {
  const Support& support = TheSupport();
  constexpr int kBytes = kStages * kStageBytes + 1024;
  static const cudaError_t prepared =
      cudaFuncSetAttribute(HopperKernel<kGated>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  Check(prepared, "preparing a product");
  a.column_tiles = static_cast<int>(CeilDiv(a.p.n, kGated ? kColumns / 2 : kColumns));
  const int blocks = std::min(a.row_tiles * a.column_tiles, support.processors);
  HopperKernel<kGated><<<blocks, kThreads, kBytes, stream>>>(
      MapOf(support.encode, a.p.x, a.p.rows, a.p.k, kRows), MapOf(support.encode, a.p.w, w_rows, a.p.k, kColumns / 2), a);
  CheckLaunch("product of many rows");
}

void LaunchTiles(cudaStream_t stream, const HopperArgs& a, int64_t w_rows) {
  if (a.p.up_row > 0) {
    Launch<true>(stream, a, w_rows);
  } else {
    Launch<false>(stream, a, w_rows);
  }
}

bool Fits(const ProductArgs& p) {
  return TheSupport().encode && p.n % 8 == 0 && !p.out_float;
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
