#include "backend/cuda/device.cuh"
#include "backend/cuda/runtime.h"
#include "backend/cuda/sampling_kernels.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 256;

// Of part of a row: the best token that is allowed, the best of all, and the sum of exp(logit - largest).
struct Partial {
  float best, largest, sum;
  int32_t token, any_token;

  __device__ void Take(const Partial& o) {
    if (o.token >= 0 && (token < 0 || o.best > best || (o.best == best && o.token < token)))
      best = o.best, token = o.token;
    if (o.any_token < 0) return;
    if (any_token < 0) {
      largest = o.largest, any_token = o.any_token, sum = o.sum;
      return;
    }
    const float next = fmaxf(largest, o.largest);
    sum = sum * expf(largest - next) + o.sum * expf(o.largest - next);
    if (o.largest > largest || (o.largest == largest && o.any_token < any_token)) any_token = o.any_token;
    largest = next;
  }
};

__device__ Partial ShuffleXor(const Partial& p, int offset) {
  constexpr unsigned kAll = 0xFFFFFFFFu;
  return {__shfl_xor_sync(kAll, p.best, offset), __shfl_xor_sync(kAll, p.largest, offset),
          __shfl_xor_sync(kAll, p.sum, offset), __shfl_xor_sync(kAll, p.token, offset),
          __shfl_xor_sync(kAll, p.any_token, offset)};
}

// Blocks: rows.
__global__ void BanKernel(SampleArgs a) {
  Begin();
  const int row = static_cast<int>(blockIdx.x), slot = a.slots[row];
  int32_t* bans = a.bans + row * (1 + kMostBans);
  __shared__ int count;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  if (slot >= 0) {
    const SlotState& s = a.states[slot];
    const int32_t* ids = a.histories + static_cast<int64_t>(slot) * kHistoryTokens;
    const int n = s.ngram_size, length = s.length;
    if (n >= 2 && length >= n && !s.on_host) {
      const int32_t* prefix = ids + length - (n - 1);
      for (int i = max(0, length - s.window) + static_cast<int>(threadIdx.x); i + n <= length; i += kThreads) {
        bool equal = true;
        for (int j = 0; equal && j < n - 1; ++j) equal = ids[i + j] == prefix[j];
        if (!equal) continue;
        const int32_t next = ids[i + n - 1];
        for (int j = 0; equal && j < s.allowed_count; ++j) equal = s.allowed[j] != next;
        if (!equal) continue;
        const int at = atomicAdd(&count, 1);
        if (at < kMostBans) bans[1 + at] = next;
      }
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) bans[0] = count;
}

// Blocks: (chunks, rows).
__global__ __launch_bounds__(kThreads) void ChunkKernel(SampleArgs a) {
  Begin();
  const int row = static_cast<int>(blockIdx.y);
  if (a.slots[row] < 0) return;
  const int32_t* bans = a.bans + row * (1 + kMostBans);
  const int ban_count = min(bans[0], kMostBans);
  const float* logits = a.logits + static_cast<int64_t>(row) * a.vocab;
  const int size = (a.vocab + kChunks - 1) / kChunks, first = static_cast<int>(blockIdx.x) * size;
  const int last = min(a.vocab, first + size);
  Partial p{-INFINITY, -INFINITY, 0, -1, -1};
  for (int i = first + static_cast<int>(threadIdx.x); i < last; i += kThreads) {
    const float logit = logits[i];
    p.any_token = p.any_token < 0 ? i : p.any_token;
    if (!(logit <= p.largest)) {  // or NaN, which the sum then shows
      p.sum = p.largest == -INFINITY ? (logit == logit ? 1.0f : logit) : p.sum * expf(p.largest - logit) + 1.0f;
      p.largest = logit, p.any_token = i;
    } else if (logit > -INFINITY) {
      p.sum += expf(logit - p.largest);
    }
    if (logit > p.best) {
      bool banned = false;
      for (int j = 0; j < ban_count; ++j) banned |= bans[1 + j] == i;
      if (!banned) p.best = logit, p.token = i;
    }
  }
  for (int offset = kWarp / 2; offset > 0; offset /= 2) p.Take(ShuffleXor(p, offset));
  __shared__ Partial of_warp[kThreads / kWarp];
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = p;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < kThreads / kWarp; ++w) p.Take(of_warp[w]);
  float* out = a.partial + (row * kChunks + static_cast<int>(blockIdx.x)) * kPartialWords;
  out[0] = p.best, out[1] = p.largest, out[2] = p.sum;
  out[3] = __int_as_float(p.token), out[4] = __int_as_float(p.any_token);
}

// Blocks: rows; a warp each.
__global__ void FinishKernel(SampleArgs a) {
  Begin();
  const int row = static_cast<int>(blockIdx.x), slot = a.slots[row], lane = static_cast<int>(threadIdx.x);
  if (slot < 0) return;
  const float* from = a.partial + (row * kChunks + lane) * kPartialWords;
  Partial p{from[0], from[1], from[2], __float_as_int(from[3]), __float_as_int(from[4])};
  for (int offset = kWarp / 2; offset > 0; offset /= 2) p.Take(ShuffleXor(p, offset));
  if (lane != 0) return;
  SlotState& s = a.states[slot];
  SampleResult result{p.token >= 0 ? p.token : p.any_token, 0, kSampled};
  const float logit = p.token >= 0 ? p.best : p.largest;
  result.logprob = logit - (p.largest + logf(p.sum));
  if (!(p.sum >= 1.0f) || !(p.largest < INFINITY)) {
    result.status = kBadLogits;
  } else if (s.on_host || s.length >= kHistoryTokens || a.bans[row * (1 + kMostBans)] > kMostBans) {
    result.status = kForHost;
  } else {
    a.histories[static_cast<int64_t>(slot) * kHistoryTokens + s.length++] = result.token;
    a.last_samples[slot] = result.token;
  }
  a.results[row] = result;
}
static_assert(kChunks == kWarp);

__global__ void GatherKernel(const uint16_t* from, const int32_t* rows, int width, uint16_t* to) {
  Begin();
  const int64_t row = rows[blockIdx.x];
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads)
    to[static_cast<int64_t>(blockIdx.x) * width + i] = from[row * width + i];
}

}  // namespace

void SampleGreedy(cudaStream_t stream, const SampleArgs& args) {
  if (args.rows == 0) return;
  LaunchChained(BanKernel, args.rows, kThreads, 0, stream, args);
  LaunchChained(ChunkKernel, dim3(kChunks, static_cast<unsigned>(args.rows)), kThreads, 0, stream, args);
  LaunchChained(FinishKernel, args.rows, kWarp, 0, stream, args);
}

void GatherRows(cudaStream_t stream, const void* from, const int32_t* rows, int count, int width, void* to) {
  if (count == 0) return;
  LaunchChained(GatherKernel, count, kThreads, 0, stream, static_cast<const uint16_t*>(from), rows, width,
                static_cast<uint16_t*>(to));
}

}  // namespace quire::cuda
