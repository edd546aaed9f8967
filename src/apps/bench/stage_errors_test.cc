#include "apps/bench/stage_errors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace quire {
namespace {

const std::vector<float> kF32 = {1, 2, 3, 4};

TEST(StageErrors, RatioOfTheTwoErrors) {
  StageErrors errors;
  errors.Add(
      "a",
      {.ours = std::vector<float>{1, 2, 3, 4.2f}, .f32 = kF32, .bf16 = std::vector<float>{1.2f, 2, 3, 4}, .width = 2});
  errors.Add(
      "a",
      {.ours = std::vector<float>{1, 2, 3, 4.2f}, .f32 = kF32, .bf16 = std::vector<float>{1.1f, 2, 3, 4}, .width = 2});
  ASSERT_EQ(errors.stages().size(), 1u);
  EXPECT_NEAR(errors.stages()[0].ratio(), std::sqrt(0.08 / 0.05), 1e-5);
  EXPECT_NEAR(errors.stages()[0].worst_ratio, 2, 1e-5);
  EXPECT_NEAR(errors.stages()[0].ours_error(), std::sqrt(0.08 / 60), 1e-6);
  EXPECT_EQ(errors.stages()[0].rows, 4);
  EXPECT_TRUE(errors.Within(1.3));
  EXPECT_FALSE(errors.Within(1.15));
}

TEST(StageErrors, RowsWithOtherExpertsAreCountedApart) {
  const std::vector<int32_t> wanted = {3, 5, 1, 2}, turned = {5, 3, 1, 2}, other = {3, 5, 1, 7};
  StageErrors errors;
  errors.Add(
      "b", {.ours = std::vector<float>{1, 2, 3, 4}, .f32 = kF32, .bf16 = std::vector<float>{1, 2.5f, 9, 9}, .width = 2},
      {.ours = turned, .f32 = wanted, .bf16 = other, .top_k = 2});
  EXPECT_EQ(errors.stages()[0].ours_flipped, 0);
  EXPECT_EQ(errors.stages()[0].bf16_flipped, 1);
  EXPECT_NEAR(errors.stages()[0].bf16_error(), std::sqrt(0.25 / 5), 1e-6);
  EXPECT_TRUE(errors.Within(1));
  errors.Add("b", {.ours = kF32, .f32 = kF32, .bf16 = kF32, .width = 2},
             {.ours = std::vector<int32_t>{9, 9, 9, 9}, .f32 = wanted, .bf16 = wanted, .top_k = 2});
  EXPECT_FALSE(errors.Within(1));
}

TEST(StageErrors, WhatIsNoNumberIsNotWithinAnyLimit) {
  StageErrors errors;
  errors.Add("c", {.ours = std::vector<float>{1, 2, 3, std::numeric_limits<float>::quiet_NaN()},
                   .f32 = kF32,
                   .bf16 = std::vector<float>{2, 2, 3, 4},
                   .width = 2});
  EXPECT_FALSE(errors.Within(1e9));
}

TEST(StageErrors, AStageThatIsNotJudgedIsOnlyShown) {
  StageErrors errors;
  errors.Add("d", {.ours = std::vector<float>{9, 9, 9, 9}, .f32 = kF32, .bf16 = kF32, .width = 4}, {}, false);
  EXPECT_TRUE(errors.Within(1));
  EXPECT_NE(errors.ToTable(1).find("not judged"), std::string::npos);
}

}  // namespace
}  // namespace quire
