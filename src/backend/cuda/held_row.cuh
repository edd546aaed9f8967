// A row held by a warp.
#pragma once

#include "backend/cuda/device.cuh"

namespace quire::cuda {

constexpr int kMostChunks = 8;  // of 8 elements a lane: rows of up to 2048

// The part of a row that a lane holds: chunks of eight elements, read once; of rows that are longer or no multiple of
// eight, every 32nd element, read anew each time.
class HeldRow {
 public:
  __device__ HeldRow(const bf16* row, int width)
      : row_(row), width_(width), chunked_(width % 8 == 0 && width <= kMostChunks * kWarp * 8) {
    if (!chunked_) return;
#pragma unroll
    for (int c = 0; c < kMostChunks; ++c)
      if (At(c) < width) held_[c] = *reinterpret_cast<const uint4*>(row + At(c));
  }
  // body(column, value)
  template <typename Body>
  __device__ void For(Body body) const {
    if (!chunked_) {
      for (int i = Lane(); i < width_; i += kWarp) body(i, __bfloat162float(row_[i]));
      return;
    }
#pragma unroll
    for (int c = 0; c < kMostChunks; ++c) {
      if (At(c) >= width_) break;
      const uint32_t pairs[4] = {held_[c].x, held_[c].y, held_[c].z, held_[c].w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float2 v = Unpack(pairs[j]);
        body(At(c) + 2 * j, v.x);
        body(At(c) + 2 * j + 1, v.y);
      }
    }
  }
  // out[i] = value(i, x[i])
  template <typename Value>
  __device__ void Map(bf16* out, Value value) const {
    if (!chunked_) {
      for (int i = Lane(); i < width_; i += kWarp) out[i] = __float2bfloat16_rn(value(i, __bfloat162float(row_[i])));
      return;
    }
#pragma unroll
    for (int c = 0; c < kMostChunks; ++c) {
      if (At(c) >= width_) break;
      uint32_t pairs[4] = {held_[c].x, held_[c].y, held_[c].z, held_[c].w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float2 v = Unpack(pairs[j]);
        pairs[j] = Pack(value(At(c) + 2 * j, v.x), value(At(c) + 2 * j + 1, v.y));
      }
      *reinterpret_cast<uint4*>(out + At(c)) = {pairs[0], pairs[1], pairs[2], pairs[3]};
    }
  }

 private:
  __device__ static int Lane() {
    return static_cast<int>(threadIdx.x) % kWarp;
  }
  __device__ static int At(int chunk) {
    return (chunk * kWarp + Lane()) * 8;
  }
  const bf16* row_;
  int width_;
  bool chunked_;
  uint4 held_[kMostChunks];
};

}  // namespace quire::cuda
