// How a token is chosen from a row of logits: the one definition for all backends.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace quire {

struct SamplingParams {
  float temperature = 0;  // 0: greedy
  float top_p = 1;
  int top_k = 0;  // 0: off
  uint64_t seed = 0;
  int ngram_size = 0;  // 0: guard off
  int ngram_window = 0;
  std::vector<int32_t> ngram_whitelist;
  bool ngram_over_prompt = false;
  int top_logprobs = 0;
};

struct Sample {
  int32_t token = -1;
  float logprob = 0;
  std::vector<std::pair<int32_t, float>> top;
};

Sample SampleRow(std::span<const float> logits, const SamplingParams& params, std::span<const int32_t> generated_ids,
                 std::span<const int32_t> prompt_ids, uint64_t token_index);

}  // namespace quire
