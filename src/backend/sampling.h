// How a token is chosen from a row of logits: the one definition for all backends. Host backends call SampleRow; device
// kernels are tested against it.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace quire {

// What a request asks for; a plain value, checked where requests are read.
struct SamplingParams {
  float temperature = 0;  // 0: greedy, of equal logits the lowest id
  float top_p = 1;        // the fewest most probable tokens whose probabilities reach this; 1: off
  int top_k = 0;          // the k most probable tokens, taken before top_p; 0: off
  uint64_t seed = 0;
  // The no-repeat n-gram guard (BannedTokens).
  int ngram_size = 0;  // 0: off
  int ngram_window = 0;
  std::vector<int32_t> ngram_whitelist;  // tokens that are never banned
  bool ngram_over_prompt = false;        // the whole sequence, prompt included, is scanned whatever the window
  int top_logprobs = 0;                  // how many of the most probable tokens to report
};

struct Sample {
  int32_t token = -1;
  float logprob = 0;  // natural log of the softmax of the raw logits: before bans and temperature
  std::vector<std::pair<int32_t, float>> top;  // token, logprob; most probable first
};

// Tokens that would repeat an n-gram, in ascending order. With L ids and n = size: none when L < n or n < 2; else, for
// i from max(0, L - window) to L - n, where ids[i .. i+n-2] equals the last n-1 ids, ids[i+n-1] is banned. A window
// smaller than n scans nothing. Source: ngram_norepeat.py of the published vLLM scripts (prompt not counted);
// ngram_over_prompt is the rule of transformers' no_repeat_ngram_size.
std::vector<int32_t> BannedTokens(const SamplingParams& params, std::span<const int32_t> generated_ids,
                                  std::span<const int32_t> prompt_ids);

// Uniform in [0, 1), a function of its arguments alone: the top 53 bits of output number token_index of the generator
// SplitMix64 (Steele, Lea, Flood 2014) started with state seed.
double UniformAt(uint64_t seed, uint64_t token_index);

// Chooses the next token from logits [vocabulary], not empty. token_index: how many tokens the request has generated.
// Bans take effect first, then temperature, top_k, top_p; the chosen token is the first, most probable first (by id
// where neither top_k nor top_p is on), at which the sum of probabilities passes UniformAt(seed, token_index). Where
// every token is banned or has the logit -inf, the bans are dropped. Throws Error{kInternal} for logits that are NaN,
// +inf, or all -inf. Any thread; equal arguments, equal result.
Sample SampleRow(std::span<const float> logits, const SamplingParams& params, std::span<const int32_t> generated_ids,
                 std::span<const int32_t> prompt_ids, uint64_t token_index);

}  // namespace quire
