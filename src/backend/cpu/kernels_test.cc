// The kernels themselves, for every instruction set that this machine has.
#include "backend/cpu/kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <random>
#include <vector>

#include "backend/cpu/isa.h"
#include "backend/cpu/products.h"
#include "base/error.h"

namespace quire::cpu {
namespace {

using Floats = std::vector<float>;

class KernelTest : public testing::TestWithParam<const char*> {
 protected:
  KernelTest() {
    setenv("QUIRE_CPU_ISA", GetParam(), 1);
    isa_ = ChooseIsa();
  }
  Floats Random(int64_t count) {
    Floats values(static_cast<size_t>(count));
    std::uniform_real_distribution<float> between(-1, 1);
    for (float& x : values) x = between(random_);
    return values;
  }
  Isa isa_;
  std::mt19937 random_{5};
};
INSTANTIATE_TEST_SUITE_P(Isas, KernelTest, testing::Values("scalar", "sse4", "avx2", "avx512", "avx512_bf16"));

// Units in the last place between two positive numbers.
double Ulps(float found, double wanted) {
  const double unit = std::ldexp(1.0, std::ilogb(static_cast<float>(wanted)) - 23);
  return std::abs(found - wanted) / unit;
}

TEST_P(KernelTest, ExpIsWithinTwoUlps) {
  double worst = 0, at = 0;
  for (float x = -87.2f; x < 88; x += 0.00137f) {
    float p = x;
    EXPECT_EQ(ExpSum(0, 1, &p), p);
    if (const double ulps = Ulps(p, std::exp(double{x})); ulps > worst) worst = ulps, at = x;
  }
  EXPECT_LT(worst, 2) << "at " << at;
  for (const float x : {-87.4f, -1e4f, -std::numeric_limits<float>::infinity()}) {
    float p = x;
    EXPECT_EQ(ExpSum(0, 1, &p), 0) << x;
  }
  float p = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(ExpSum(0, 1, &p)));
}

TEST_P(KernelTest, GeluIsExact) {
  for (float x = -6; x < 6; x += 0.00193f) {
    float found;
    FinishRow(&x, nullptr, Activation::kGelu, nullptr, 1, &found);
    // The error function is off by 5e-7 of itself at most (row_kernels.cc).
    const double wanted = 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    ASSERT_NEAR(found, wanted, 0.5 * std::abs(x) * 6e-7) << x;
  }
}

TEST_P(KernelTest, RoundingIsToNearestEven) {
  std::vector<float> in;
  for (uint32_t high = 0; high < 0x10000; high += 7)
    for (uint32_t low : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu})
      in.push_back(std::bit_cast<float>(high << 16 | low));
  std::vector<Bf16> out(in.size());
  RoundRow(in.data(), static_cast<int64_t>(in.size()), out.data());
  for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(out[i], ToBf16(in[i])) << std::hexfloat << in[i];
}

TEST_P(KernelTest, PanelsHoldTheWeights) {
  for (const int64_t n : {1, 15, 16, 33, 63, 64}) {
    for (const int64_t k : {2, 17, 64, 130}) {
      const int64_t stride = k + 3;
      const Floats w = Random(n * stride);
      std::vector<Bf16> rounded(w.size());
      RoundRow(w.data(), static_cast<int64_t>(w.size()), rounded.data());
      std::vector<F16> half(w.size());
      for (size_t i = 0; i < w.size(); ++i) half[i] = ToF16(w[i]);
      Floats plain(static_cast<size_t>(k * kPanel), NAN), from_bf16 = plain, from_f16 = plain;
      PackPanel(w.data(), DType::kF32, stride, n, k, plain.data());
      PackPanel(rounded.data(), DType::kBf16, stride, n, k, from_bf16.data());
      PackPanel(half.data(), DType::kF16, stride, n, k, from_f16.data());
      const Products products(DType::kBf16);
      std::vector<Bf16> pairs(static_cast<size_t>(products.PaddedDepth(k) * kPanel), ToBf16(NAN));
      products.Pack(rounded.data(), DType::kBf16, stride, n, k, pairs.data());
      for (int64_t i = 0; i < products.PaddedDepth(k); ++i) {
        for (int64_t j = 0; j < kPanel; ++j) {
          const bool inside = i < k && j < n;
          const Bf16 wanted = inside ? rounded[j * stride + i] : Bf16{0};
          ASSERT_EQ(pairs[(i / 2 * kPanel + j) * 2 + i % 2], wanted) << n << " x " << k << " at " << j << ", " << i;
          if (i >= k) continue;
          ASSERT_EQ(plain[i * kPanel + j], inside ? w[j * stride + i] : 0);
          ASSERT_EQ(from_bf16[i * kPanel + j], ToFloat(wanted));
          ASSERT_EQ(from_f16[i * kPanel + j], inside ? ToFloat(half[j * stride + i]) : 0);
        }
      }
    }
  }
}

// Row counts, in one call or in two, and passes over the depth change no bit.
TEST_P(KernelTest, ProductsOfAnyRowCountAreEqual) {
  for (const DType operand : {DType::kF32, DType::kBf16}) {
    if (operand == DType::kBf16 && !isa_.fast_bf16) continue;
    const Products products(operand);
    for (const int64_t k : {1, 32, 100, 768, 1200}) {
      for (const int64_t columns : {3, 64, 90}) {
        const int64_t rows = Products::kMaxRows, width = RoundUp(columns, kPanel);
        const Floats x = Random(rows * k), w = Random(columns * k);
        std::vector<char> panels(static_cast<size_t>(width / kPanel * products.PanelBytes(k)));
        for (int64_t j = 0; j < columns; j += kPanel)
          products.Pack(w.data() + j * k, DType::kF32, k, std::min(kPanel, columns - j), k,
                        panels.data() + j / kPanel * products.PanelBytes(k));
        const auto multiply = [&](int64_t first, int64_t count) {
          std::vector<Bf16> buffer(static_cast<size_t>(products.PaddedRows(count) * products.PaddedDepth(k)));
          Floats c(static_cast<size_t>(products.PaddedRows(count) * width));
          products.Multiply(products.Stage(x.data() + first * k, k, count, k, buffer.data()), count, panels.data(),
                            columns, k, c.data());
          return c;
        };
        const Floats all = multiply(0, rows);
        for (const int64_t count : {1, 2, 5, 6, 7, 16, 31, 64, 95}) {
          const int64_t first = rows - count;
          const Floats some = multiply(first, count);
          for (int64_t r = 0; r < count; ++r)
            for (int64_t j = 0; j < columns; ++j)
              ASSERT_EQ(some[r * width + j], all[(first + r) * width + j])
                  << count << " rows, " << k << " inputs, column " << j;
        }
      }
    }
  }
}

TEST(Isa, UnknownNameIsAUsageError) {
  setenv("QUIRE_CPU_ISA", "avx1024", 1);
  try {
    ChooseIsa();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
  }
  unsetenv("QUIRE_CPU_ISA");
}

}  // namespace
}  // namespace quire::cpu
