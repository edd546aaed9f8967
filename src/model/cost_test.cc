#include "model/cost.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

// The table "Full-size DeepSeek-OCR-2, bf16" of docs/performance.md, which also counts SAM's relative positions and
// leaves out a prompt's attention.
TEST(Cost, CountsTheFullSizeModel) {
  const ModelConfig config = PublishedConfig(Architecture::kOcr2);
  const PagePlan page = PlanPage(config.geometry, 1191, 1684, FindMode(config.geometry, ""));
  EXPECT_NEAR(PageWork(config, page, 2).flops, 5.65e12, 0.2e12);
  EXPECT_NEAR(PrefillWork(config, 1133, 2).flops, 1133 * 0.81e9, 1133 * 0.05e9);
  EXPECT_NEAR(TokenWork(config, 2).weight_bytes, 1.15e9, 0.01e9);
}

TEST(Cost, OneSequenceOfAStepIsAToken) {
  const ModelConfig config = PublishedConfig(Architecture::kOcr2);
  EXPECT_DOUBLE_EQ(DecodeWork(config, 1, 0.5, 2).flops, TokenWork(config, 2).flops);
  EXPECT_DOUBLE_EQ(DecodeWork(config, 1, 0.5, 2).weight_bytes, TokenWork(config, 2).weight_bytes);
}

// 61,440 bytes of cache a token of context; 0.70 GB of weights and a share of the experts' 4.84 GB.
TEST(Cost, ManySequencesShareTheWeights) {
  const ModelConfig config = PublishedConfig(Architecture::kOcr2);
  EXPECT_DOUBLE_EQ(ExpectedExperts(config.lm, 1), 6);
  EXPECT_NEAR(ExpectedExperts(config.lm, 16), 50.8, 0.05);
  EXPECT_NEAR(ExpectedExperts(config.lm, 64), 63.9, 0.05);
  const Work work = DecodeWork(config, 64, 1200, 2);
  EXPECT_DOUBLE_EQ(work.cache_bytes, 64.0 * 1200 * 61440);
  EXPECT_NEAR(work.weight_bytes, 0.70e9 + 63.87 / 64 * 4.84e9, 0.02e9);
}

}  // namespace
}  // namespace quire
