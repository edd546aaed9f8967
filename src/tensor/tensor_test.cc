#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "tensor/compare.h"

namespace quire {
namespace {

TEST(DTypeTest, Bf16RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Bf16 x{static_cast<uint16_t>(bits)};
    if (!std::isnan(ToFloat(x))) EXPECT_EQ(ToBf16(ToFloat(x)), x);
  }
  EXPECT_EQ(RoundToBf16(1.0f + 0x1p-8f), 1.0f);
  EXPECT_EQ(RoundToBf16(1.0f + 3 * 0x1p-8f), 1.0f + 0x1p-6f);
  EXPECT_TRUE(std::isnan(RoundToBf16(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isinf(RoundToBf16(std::numeric_limits<float>::max())));
}

TEST(DTypeTest, F16RoundTripAndRounding) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const F16 x{static_cast<uint16_t>(bits)};
    if (!std::isnan(ToFloat(x))) EXPECT_EQ(ToF16(ToFloat(x)).bits, x.bits);
  }
  EXPECT_EQ(ToFloat(ToF16(65519.0f)), 65504.0f);
  EXPECT_TRUE(std::isinf(ToFloat(ToF16(65520.0f))));
  EXPECT_EQ(ToFloat(ToF16(0x1p-25f)), 0.0f);
  EXPECT_EQ(ToFloat(ToF16(1.5f * 0x1p-24f)), 0x1p-23f);
  EXPECT_EQ(ToFloat(ToF16(1.0f + 0x1p-11f)), 1.0f);
}

TEST(ViewTest, SlicesAndShapes) {
  const HostArray a(DType::kF32, {4, 3, 2});
  EXPECT_EQ(a.view.rows(), 12);
  EXPECT_EQ(a.view.Slice(1, 2).shape, Shape({2, 3, 2}));
  EXPECT_EQ(a.view.Slice(1, 2).as<float>() - a.view.as<float>(), 6);
  EXPECT_THROW(a.view.Slice(3, 2), Error);
  EXPECT_EQ(a.view.shape.ToString(), "[4, 3, 2]");
}

TEST(CompareTest, Measures) {
  const float x[] = {3, 4}, y[] = {3, 4.5f};
  EXPECT_NEAR(Compare(y, x).relative_l2, 0.1, 1e-6);
  const float bad[] = {3, NAN};
  EXPECT_TRUE(std::isinf(Compare(bad, x).relative_l2));
}

}  // namespace
}  // namespace quire
