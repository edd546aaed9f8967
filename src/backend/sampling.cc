#include "backend/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/check.h"
#include "base/error.h"

namespace quire {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

[[noreturn]] void RefuseLogits(std::span<const float> logits) {
  auto odd = std::find_if(logits.begin(), logits.end(), [](float logit) { return !(logit < -kNever); });
  if (odd == logits.end()) odd = logits.begin();  // all are -inf
  throw Error(
      ErrorKind::kInternal,
      "wanted numbers for logits, found " + std::to_string(*odd) + " for token " + std::to_string(odd - logits.begin()),
      {}, "the weights are damaged or a kernel of this device is at fault");
}

// Log of the sum of exp(logits); refuses a row without one. In float, summed in double: off by no more than 1e-7.
double LogSumExp(std::span<const float> logits) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  if (!(sum >= 1)) RefuseLogits(logits);  // NaN where a logit is NaN or the largest is infinite
  return largest + std::log(sum);
}

bool IsBanned(std::span<const int32_t> banned, size_t token) {
  return std::binary_search(banned.begin(), banned.end(), static_cast<int32_t>(token));
}

// The largest logit, of equals the lowest id; -1 when every token is banned or -inf.
int32_t Greedy(std::span<const float> logits, std::span<const int32_t> banned) {
  int32_t best = -1;
  float largest = kNever;
  for (size_t token = 0; token < logits.size(); ++token) {
    if (!(logits[token] > largest) || IsBanned(banned, token)) continue;
    largest = logits[token];
    best = static_cast<int32_t>(token);
  }
  return best;
}

struct Candidate {
  int32_t token;
  float logit;
  double weight;  // proportional to its probability; the largest is 1
};

// Ascending order of this is descending probability, of equals the lowest id first.
bool MoreProbable(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

// All tokens that may be chosen, by id.
std::vector<Candidate> Candidates(std::span<const float> logits, std::span<const int32_t> banned) {
  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  for (size_t token = 0; token < logits.size(); ++token)
    if (logits[token] > kNever && !IsBanned(banned, token))
      candidates.push_back({static_cast<int32_t>(token), logits[token], 0});
  return candidates;
}

void KeepMostProbable(size_t count, std::vector<Candidate>* candidates) {
  count = std::min(count, candidates->size());
  std::partial_sort(candidates->begin(), candidates->begin() + count, candidates->end(), MoreProbable);
  candidates->resize(count);
}

double TotalWeight(const std::vector<Candidate>& candidates) {
  double total = 0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  return total;
}

void KeepTopP(float top_p, std::vector<Candidate>* candidates) {
  const double total = TotalWeight(*candidates);
  // n tokens below (1 - p) / n sum up to less than 1 - p: the others suffice, and few are left to sort.
  const double needless = (1.0 - top_p) / candidates->size() * total;
  std::erase_if(*candidates, [&](const Candidate& candidate) { return candidate.weight < needless; });
  std::sort(candidates->begin(), candidates->end(), MoreProbable);
  double sum = 0;
  size_t kept = 0;
  while (kept < candidates->size() && (kept == 0 || sum < top_p * total)) sum += (*candidates)[kept++].weight;
  candidates->resize(kept);
}

// One of the candidates at random, -1 when there are none.
int32_t Draw(std::vector<Candidate> candidates, const SamplingParams& params, uint64_t token_index) {
  if (candidates.empty()) return -1;
  if (params.top_k > 0) KeepMostProbable(params.top_k, &candidates);
  const float largest = std::min_element(candidates.begin(), candidates.end(), MoreProbable)->logit;
  for (Candidate& candidate : candidates)
    candidate.weight = std::exp((static_cast<double>(candidate.logit) - largest) / params.temperature);
  if (params.top_p < 1) KeepTopP(params.top_p, &candidates);
  const double wanted = UniformAt(params.seed, token_index) * TotalWeight(candidates);
  double sum = 0;
  for (const Candidate& candidate : candidates) {
    sum += candidate.weight;
    if (sum > wanted) return candidate.token;
  }
  return candidates.back().token;
}

}  // namespace

std::vector<int32_t> BannedTokens(const SamplingParams& params, std::span<const int32_t> generated_ids,
                                  std::span<const int32_t> prompt_ids) {
  const auto n = static_cast<size_t>(std::max(params.ngram_size, 0));
  if (n < 2) return {};
  std::span<const int32_t> ids = generated_ids;
  std::vector<int32_t> whole;
  auto window = static_cast<size_t>(std::max(params.ngram_window, 0));
  if (params.ngram_over_prompt) {
    whole.assign(prompt_ids.begin(), prompt_ids.end());
    whole.insert(whole.end(), generated_ids.begin(), generated_ids.end());
    ids = whole;
    window = whole.size();
  }
  if (ids.size() < n) return {};
  const auto prefix = ids.last(n - 1);
  const auto& whitelist = params.ngram_whitelist;
  std::vector<int32_t> banned;
  for (size_t i = ids.size() - std::min(window, ids.size()); i + n <= ids.size(); ++i) {
    const int32_t next = ids[i + n - 1];
    if (std::find(whitelist.begin(), whitelist.end(), next) != whitelist.end()) continue;
    if (std::equal(prefix.begin(), prefix.end(), ids.begin() + i)) banned.push_back(next);
  }
  std::sort(banned.begin(), banned.end());
  banned.erase(std::unique(banned.begin(), banned.end()), banned.end());
  return banned;
}

double UniformAt(uint64_t seed, uint64_t token_index) {
  uint64_t x = seed + (token_index + 1) * 0x9E3779B97F4A7C15;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  x ^= x >> 31;
  return static_cast<double>(x >> 11) * 0x1p-53;
}

Sample SampleRow(std::span<const float> logits, const SamplingParams& params, std::span<const int32_t> generated_ids,
                 std::span<const int32_t> prompt_ids, uint64_t token_index) {
  QUIRE_CHECK(!logits.empty());
  const double log_sum = LogSumExp(logits);
  const std::vector<int32_t> banned = BannedTokens(params, generated_ids, prompt_ids);
  auto choose = [&](std::span<const int32_t> without) {
    return params.temperature > 0 ? Draw(Candidates(logits, without), params, token_index) : Greedy(logits, without);
  };
  Sample sample;
  sample.token = choose(banned);
  if (sample.token < 0) sample.token = choose({});

  sample.logprob = static_cast<float>(logits[sample.token] - log_sum);
  if (params.top_logprobs > 0) {
    std::vector<Candidate> most = Candidates(logits, {});
    KeepMostProbable(params.top_logprobs, &most);
    for (const Candidate& candidate : most)
      sample.top.emplace_back(candidate.token, static_cast<float>(candidate.logit - log_sum));
  }
  return sample;
}

}  // namespace quire
