#include "engine/confidence.h"

#include <gtest/gtest.h>

#include <cmath>

namespace quire {
namespace {

Confidence Of(int probable, int improbable) {
  ConfidenceMeter meter;
  for (int i = 0; i < probable; ++i) meter.Push(std::log(0.9f));
  for (int i = 0; i < improbable; ++i) meter.Push(std::log(0.4f));
  return meter.result();
}

TEST(ConfidenceTest, CountsTheImprobable) {
  const Confidence confidence = Of(3, 1);
  EXPECT_EQ(confidence.tokens, 4);
  EXPECT_EQ(confidence.improbable, 1);
  EXPECT_DOUBLE_EQ(confidence.improbable_share(), 0.25);
  EXPECT_NEAR(confidence.mean_logprob(), (3 * std::log(0.9) + std::log(0.4)) / 4, 1e-7);
}

TEST(ConfidenceTest, DoubtsAboveTheShareAndFromEnoughTokens) {
  EXPECT_TRUE(Of(69, 31).doubtful());
  EXPECT_FALSE(Of(70, 30).doubtful());
  EXPECT_TRUE(Of(6, 4).doubtful());
  EXPECT_FALSE(Of(5, 4).doubtful());
  EXPECT_FALSE(Of(0, 0).doubtful());
}

}  // namespace
}  // namespace quire
