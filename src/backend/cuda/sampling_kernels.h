// Greedy choice with the n-gram guard on the device, as backend/sampling.h defines it; and the histories of all slots.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace quire::cuda {

inline constexpr int kHistoryTokens = 1 << 15;  // of a slot; what goes on longer is chosen by the host
inline constexpr int kMostAllowed = 64;         // tokens of a whitelist
inline constexpr int kMostBans = 256;           // of a step and row

struct SlotState {
  int32_t on_host;  // this slot's tokens are chosen by the host
  int32_t ngram_size, window;
  int32_t allowed_count;
  int32_t allowed[kMostAllowed];
  int32_t length;  // of the history that is scanned
};

struct SampleResult {
  int32_t token;
  float logprob;
  int32_t status;  // SampleStatus
};
enum SampleStatus : int32_t { kSampled, kForHost, kBadLogits };

struct SampleArgs {
  const float* logits;  // [rows, vocab]
  int rows, vocab;
  const int32_t* slots;   // [rows]; -1: none
  SlotState* states;      // [slots]
  int32_t* histories;     // [slots, kHistoryTokens]
  int32_t* last_samples;  // [slots]
  int32_t* bans;          // [rows, 1 + kMostBans]: how many, which
  float* partial;         // [rows, kChunks, kPartialWords]
  SampleResult* results;  // [rows]
};
inline constexpr int kChunks = 32;  // of a row of logits: a block each
inline constexpr int kPartialWords = 6;

void SampleGreedy(cudaStream_t stream, const SampleArgs& args);

// to[i] = from[rows[i]], rows of width elements of 2 bytes.
void GatherRows(cudaStream_t stream, const void* from, const int32_t* rows, int count, int width, void* to);

}  // namespace quire::cuda
