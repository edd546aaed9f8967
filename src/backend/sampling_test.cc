#include "backend/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "base/error.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;
using Logits = std::vector<float>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

SamplingParams Guard(int size, int window, Ids whitelist = {}) {
  SamplingParams params;
  params.ngram_size = size;
  params.ngram_window = window;
  params.ngram_whitelist = std::move(whitelist);
  return params;
}

// The published rule word for word, in whole ids and sets.
std::set<int32_t> BannedByDefinition(const SamplingParams& p, const Ids& generated, const Ids& prompt) {
  Ids ids = generated;
  int window = p.ngram_window;
  if (p.ngram_over_prompt) {
    ids.insert(ids.begin(), prompt.begin(), prompt.end());
    window = static_cast<int>(ids.size());
  }
  const int length = static_cast<int>(ids.size()), n = p.ngram_size;
  std::set<int32_t> banned;
  if (n < 2 || length < n) return banned;
  const Ids prefix(ids.end() - (n - 1), ids.end());
  for (int i = std::max(0, length - window); i <= length - n; ++i)
    if (Ids(ids.begin() + i, ids.begin() + i + n - 1) == prefix) banned.insert(ids[i + n - 1]);
  for (const int32_t token : p.ngram_whitelist) banned.erase(token);
  return banned;
}

TEST(BannedTokensTest, BansWhatFollowedTheSameIds) {
  EXPECT_THAT(BannedTokens(Guard(3, 90), Ids{1, 2, 3, 1, 2, 4, 1, 2}, {}), ElementsAre(3, 4));
  EXPECT_THAT(BannedTokens(Guard(3, 90, {4}), Ids{1, 2, 3, 1, 2, 4, 1, 2}, {}), ElementsAre(3));
  EXPECT_THAT(BannedTokens(Guard(2, 90), Ids{7, 7, 7}, {}), ElementsAre(7));
  EXPECT_THAT(BannedTokens(Guard(3, 90), Ids{1, 2, 3}, {}), ElementsAre());
}

TEST(BannedTokensTest, Edges) {
  const Ids ids = {1, 2, 3, 1, 2};
  EXPECT_THAT(BannedTokens(Guard(0, 90), ids, {}), ElementsAre());        // off
  EXPECT_THAT(BannedTokens(Guard(1, 90), ids, {}), ElementsAre());        // never bans
  EXPECT_THAT(BannedTokens(Guard(3, 5), ids, {}), ElementsAre(3));        // the window reaches the first 1 2 3
  EXPECT_THAT(BannedTokens(Guard(3, 4), ids, {}), ElementsAre());         // one short of it
  EXPECT_THAT(BannedTokens(Guard(3, 2), Ids(20, 5), {}), ElementsAre());  // a window below n scans nothing
  EXPECT_THAT(BannedTokens(Guard(3, 0), Ids(20, 5), {}), ElementsAre());
  EXPECT_THAT(BannedTokens(Guard(6, 90), ids, {}), ElementsAre());  // fewer ids than n
}

TEST(BannedTokensTest, PromptCountsOnlyWhereAsked) {
  SamplingParams params = Guard(3, 0);
  EXPECT_THAT(BannedTokens(params, Ids{1, 2}, Ids{1, 2, 3}), ElementsAre());
  params.ngram_over_prompt = true;
  EXPECT_THAT(BannedTokens(params, Ids{1, 2}, Ids{1, 2, 3}), ElementsAre(3));
  EXPECT_THAT(BannedTokens(params, Ids{2}, Ids{1, 2, 3, 1}), ElementsAre(3));  // across the border
}

TEST(BannedTokensTest, AgreesWithTheDefinition) {
  std::mt19937 random(1);
  int banned_cases = 0;
  for (int i = 0; i < 20000; ++i) {
    SamplingParams params = Guard(static_cast<int>(random() % 6), static_cast<int>(random() % 30));
    params.ngram_over_prompt = random() % 4 == 0;
    if (random() % 2) params.ngram_whitelist = {1};
    Ids prompt(random() % 20), generated(random() % 40);
    for (int32_t& id : prompt) id = static_cast<int32_t>(random() % 3);
    for (int32_t& id : generated) id = static_cast<int32_t>(random() % 3);
    const std::set<int32_t> wanted = BannedByDefinition(params, generated, prompt);
    EXPECT_EQ(BannedTokens(params, generated, prompt), Ids(wanted.begin(), wanted.end()));
    banned_cases += !wanted.empty();
  }
  EXPECT_GT(banned_cases, 5000);
}

TEST(SampleRowTest, GreedyTakesTheLargestAndOfEqualsTheLowestId) {
  EXPECT_EQ(SampleRow(Logits{0, 3, 1, 3}, {}, {}, {}, 0).token, 1);
  EXPECT_EQ(SampleRow(Logits{-1, -1, -1}, {}, {}, {}, 0).token, 0);
  EXPECT_EQ(SampleRow(Logits{-kInfinity, -5}, {}, {}, {}, 0).token, 1);
}

TEST(SampleRowTest, LogprobIsOfTheRawLogits) {
  SamplingParams params = Guard(2, 90);
  params.temperature = 0.1f;
  params.top_logprobs = 2;
  const Logits logits = {std::log(0.5f), std::log(0.25f), std::log(0.125f), std::log(0.125f)};
  const Sample sample = SampleRow(logits, params, Ids{9, 0, 9}, {}, 3);  // 0 is banned
  EXPECT_EQ(sample.token, 1);
  EXPECT_FLOAT_EQ(sample.logprob, std::log(0.25f));
  ASSERT_EQ(sample.top.size(), 2u);
  EXPECT_EQ(sample.top[0].first, 0);
  EXPECT_FLOAT_EQ(sample.top[0].second, std::log(0.5f));
  EXPECT_EQ(sample.top[1].first, 1);
}

TEST(SampleRowTest, LogprobHoldsForLargeAndManyLogits) {
  EXPECT_FLOAT_EQ(SampleRow(Logits{1000, 1000}, {}, {}, {}, 0).logprob, std::log(0.5f));
  EXPECT_NEAR(SampleRow(Logits(129280, -3.f), {}, {}, {}, 0).logprob, -std::log(129280.0), 1e-6);
}

TEST(SampleRowTest, TopListsAtMostWhatThereIs) {
  SamplingParams params;
  params.top_logprobs = 5;
  const auto top = SampleRow(Logits{1, -kInfinity, 1}, params, {}, {}, 0).top;
  ASSERT_EQ(top.size(), 2u);
  EXPECT_EQ(top[0].first, 0);
  EXPECT_EQ(top[1].first, 2);
}

TEST(SampleRowTest, BansHoldAtEveryTemperatureUntilNothingIsLeft) {
  for (const float temperature : {0.f, 1.f}) {
    SamplingParams params = Guard(2, 90);
    params.temperature = temperature;
    EXPECT_EQ(SampleRow(Logits{5, 0}, params, Ids{7, 0, 7}, {}, 3).token, 1);
    EXPECT_EQ(SampleRow(Logits{100, 0}, params, Ids{7, 0, 7, 1, 7}, {}, 5).token, 0);  // both banned: bans dropped
    EXPECT_EQ(SampleRow(Logits{5, -kInfinity}, params, Ids{7, 0, 7}, {}, 3).token, 0);
  }
}

TEST(SampleRowTest, RefusesWhatHasNoSoftmax) {
  for (const Logits& logits : {Logits{0, NAN}, Logits{NAN, 0}, Logits{0, kInfinity}, Logits{-kInfinity, -kInfinity}}) {
    try {
      SampleRow(logits, {}, {}, {}, 0);
      ADD_FAILURE() << "was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInternal);
      EXPECT_THAT(error.what(), HasSubstr("wanted numbers for logits"));
    }
  }
}

TEST(UniformAtTest, IsSplitMix64) {
  // The first outputs of the published generator for the seed 1234567.
  const uint64_t kOutputs[] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u};
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(UniformAt(1234567, i), static_cast<double>(kOutputs[i] >> 11) * 0x1p-53);
}

// How often each token is drawn over 20,000 indices.
std::vector<double> Frequencies(const Logits& logits, const SamplingParams& params) {
  constexpr int kDraws = 20000;
  std::vector<double> counts(logits.size());
  for (int i = 0; i < kDraws; ++i) counts[SampleRow(logits, params, {}, {}, i).token] += 1.0 / kDraws;
  return counts;
}

// Four standard deviations of a frequency of one half over 20,000 draws.
constexpr double kBound = 4 * 0.5 / 141.4;

Logits LogitsOf(std::initializer_list<double> probabilities) {
  Logits logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)) + 3);
  return logits;
}

void ExpectFrequencies(const SamplingParams& params, std::initializer_list<double> wanted) {
  const std::vector<double> found = Frequencies(LogitsOf({0.1, 0.4, 0.2, 0.3}), params);
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(found[i], wanted.begin()[i], kBound) << i;
    EXPECT_EQ(found[i] == 0, wanted.begin()[i] == 0) << i;
  }
}

TEST(DistributionTest, Temperature) {
  SamplingParams params;
  params.temperature = 1;
  ExpectFrequencies(params, {0.1, 0.4, 0.2, 0.3});
  params.temperature = 0.5;  // squares: 1 16 4 9 of 30
  ExpectFrequencies(params, {1 / 30., 16 / 30., 4 / 30., 9 / 30.});
  params.temperature = 1e-6f;
  ExpectFrequencies(params, {0, 1, 0, 0});
}

TEST(DistributionTest, TopK) {
  SamplingParams params;
  params.temperature = 1;
  params.top_k = 2;
  ExpectFrequencies(params, {0, 4 / 7., 0, 3 / 7.});
  params.top_k = 100;
  ExpectFrequencies(params, {0.1, 0.4, 0.2, 0.3});
}

TEST(DistributionTest, TopP) {
  SamplingParams params;
  params.temperature = 1;
  params.top_p = 0.6f;  // 0.4 does not suffice, 0.7 does
  ExpectFrequencies(params, {0, 4 / 7., 0, 3 / 7.});
  params.top_p = 0.85f;
  ExpectFrequencies(params, {0, 4 / 9., 2 / 9., 3 / 9.});
  params.top_p = 0.01f;
  ExpectFrequencies(params, {0, 1, 0, 0});
  params.top_p = 0.65f;  // of what top_k leaves: 4/9 does not suffice, 7/9 does
  params.top_k = 3;
  ExpectFrequencies(params, {0, 4 / 7., 0, 3 / 7.});
}

TEST(DistributionTest, TopPOverAWideRowIsTheDefinition) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal(0, 2);
  for (int i = 0; i < 50; ++i) {
    Logits logits(2000);
    for (float& logit : logits) logit = normal(random);
    SamplingParams params;
    params.temperature = 0.9f;
    params.top_p = 0.3f + 0.6f * static_cast<float>(i) / 50;
    Ids order(logits.size());
    for (size_t k = 0; k < order.size(); ++k) order[k] = static_cast<int32_t>(k);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    double total = 0, sum = 0;
    auto weight = [&](int32_t token) { return std::exp(logits[token] / 0.9); };
    for (const int32_t token : order) total += weight(token);
    std::set<int32_t> nucleus;
    for (const int32_t token : order) {
      if (sum >= params.top_p * total) break;
      nucleus.insert(token);
      sum += weight(token);
    }
    for (uint64_t index = 0; index < 300; ++index)
      EXPECT_TRUE(nucleus.contains(SampleRow(logits, params, {}, {}, index).token));
  }
}

TEST(DistributionTest, DependsOnSeedAndIndexAlone) {
  const Logits logits(100, 0.f);
  SamplingParams params;
  params.temperature = 1;
  Ids first, again, other;
  for (uint64_t i = 0; i < 50; ++i) first.push_back(SampleRow(logits, params, {}, {}, i).token);
  for (uint64_t i = 50; i-- > 0;) again.insert(again.begin(), SampleRow(logits, params, Ids{1, 2}, Ids{3}, i).token);
  params.seed = 1;
  for (uint64_t i = 0; i < 50; ++i) other.push_back(SampleRow(logits, params, {}, {}, i).token);
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
  EXPECT_GT(std::set<int32_t>(first.begin(), first.end()).size(), 30u);
}

}  // namespace
}  // namespace quire
