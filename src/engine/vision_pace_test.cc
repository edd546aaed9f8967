#include "engine/vision_pace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using Sides = std::vector<int>;

TEST(VisionPaceTest, AnUnknownSideGoesAlone) {
  VisionPace pace;
  EXPECT_EQ(pace.CountWithin(Sides{768, 768, 1024}, 1e9), 1u);
  EXPECT_THAT(pace.Learn(Sides{768}, 20), ElementsAre(20));
  EXPECT_EQ(pace.CountWithin(Sides{768, 768, 1024}, 1e9), 2u);
  EXPECT_EQ(pace.CountWithin(Sides{1024, 768}, 1e9), 1u);
}

TEST(VisionPaceTest, FillsTheBudgetInOrder) {
  VisionPace pace;
  pace.Learn(Sides{768}, 20);
  pace.Learn(Sides{1024}, 50);
  const Sides sides = {768, 768, 1024, 768, 768};
  EXPECT_EQ(pace.CountWithin(sides, 5), 1u);  // at least one
  EXPECT_EQ(pace.CountWithin(sides, 40), 2u);
  EXPECT_EQ(pace.CountWithin(sides, 89), 2u);  // none overtakes the third
  EXPECT_EQ(pace.CountWithin(sides, 90), 3u);
  EXPECT_EQ(pace.CountWithin(sides, 1000), 5u);
}

TEST(VisionPaceTest, ACallsTimeIsDividedByWhatIsKnown) {
  VisionPace pace;
  pace.Learn(Sides{768}, 20);
  pace.Learn(Sides{1024}, 60);
  EXPECT_THAT(pace.Learn(Sides{768, 1024, 768}, 50), ElementsAre(10, 30, 10));
}

TEST(VisionPaceTest, FollowsADeviceThatBecomesFaster) {
  VisionPace pace;
  pace.Learn(Sides{768}, 1000);
  for (int i = 0; i < 20; ++i) pace.Learn(Sides{768}, 10);
  EXPECT_EQ(pace.CountWithin(Sides(20, 768), 110), 10u);
}

TEST(VisionPaceTest, TimeTooShortToMeasure) {
  VisionPace pace;
  EXPECT_THAT(pace.Learn(Sides{768, 768}, 0), ElementsAre(DoubleNear(0, 1e-3), DoubleNear(0, 1e-3)));
  EXPECT_EQ(pace.CountWithin(Sides(5, 768), 1), 5u);
}

}  // namespace
}  // namespace quire
