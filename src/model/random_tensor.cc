#include "model/random_tensor.h"

#include <array>
#include <cmath>

namespace quire {
namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
constexpr uint64_t Mix(uint64_t z) {
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
  z = (z ^ z >> 27) * 0x94D049BB133111EB;
  return z ^ z >> 31;
}

// FNV-1a over the seed's eight bytes, lowest first, and the name; mixed.
uint64_t KeyOf(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325;
  const auto take = [&](uint8_t byte) { hash = (hash ^ byte) * 0x100000001B3; };
  for (int i = 0; i < 8; ++i) take(static_cast<uint8_t>(seed >> (8 * i)));
  for (const char c : name) take(static_cast<uint8_t>(c));
  return Mix(hash);
}

// Sum of the eight bytes: 0 to 2040, nearly normal, of mean 1020 and variance 8 * (256^2 - 1) / 12 = 43690.
constexpr uint64_t SumOfBytes(uint64_t bits) {
  constexpr uint64_t kEven = 0x00FF00FF00FF00FF;
  return ((bits & kEven) + (bits >> 8 & kEven)) * 0x0001000100010001 >> 48;
}
constexpr int kSums = 2041;
constexpr int kMeanSum = 1020;
constexpr double kVarianceOfSum = 43690.0;

// A router's logits over 64 experts have this deviation for rows of unit variance: measured, the mean of the largest
// probability is then 0.250.
constexpr double kRouterLogitStd = 1.743;

double Deviation(const ListedTensor& listed) {
  const Shape& shape = listed.tensor.shape;
  const auto per_input = [&] { return 1.0 / std::sqrt(static_cast<double>(shape.elements() / shape[0])); };
  switch (listed.role) {
    case TensorRole::kProduct:
      return per_input();
    case TensorRole::kRouter:
      return kRouterLogitStd * per_input();
    case TensorRole::kEmbedding:
      return 1.0;
    case TensorRole::kPosition:
      return 0.5;
    case TensorRole::kRelative:
      return 0.05;
    case TensorRole::kNorm:
      return 0.1;
    case TensorRole::kBias:
      return 0.02;
  }
  return 0;
}

// The weight of every sum.
std::array<Bf16, kSums> Weights(const ListedTensor& listed) {
  const auto step = static_cast<float>(Deviation(listed) / std::sqrt(kVarianceOfSum));
  std::array<Bf16, kSums> weights;
  for (int sum = 0; sum < kSums; ++sum) {
    const float weight = static_cast<float>(sum - kMeanSum) * step;
    weights[sum] = ToBf16(listed.role == TensorRole::kNorm ? 1.0f + weight : weight);
  }
  return weights;
}

}  // namespace

void FillRandom(const ListedTensor& listed, uint64_t seed, int64_t first, std::span<Bf16> out) {
  const std::array<Bf16, kSums> weights = Weights(listed);
  uint64_t state = KeyOf(seed, listed.tensor.name) + static_cast<uint64_t>(first) * kGolden;
  for (Bf16& weight : out) {
    weight = weights[SumOfBytes(Mix(state))];
    state += kGolden;
  }
}

}  // namespace quire
