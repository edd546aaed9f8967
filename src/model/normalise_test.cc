#include "backend/normalise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace quire {
namespace {

TEST(Normalise, HasTorchvisionsValues) {
  constexpr std::array<uint8_t, 12> kBytes = {0, 255, 127, 128, 1, 254, 3, 51, 77, 200, 99, 250};
  std::vector<float> out(kBytes.size());
  NormalisePixels(kBytes.data(), kBytes.size(), out.data());
  // Printed by torchvision's ToTensor and Normalize, float32 to nine digits.
  EXPECT_THAT(
      out, testing::ElementsAre(-1.0f, 1.0f, -0.00392156839f, 0.003921628f, -0.992156863f, 0.992156863f, -0.97647059f,
                                -0.600000024f, -0.396078408f, 0.568627477f, -0.223529398f, 0.960784316f));
}

}  // namespace
}  // namespace quire
