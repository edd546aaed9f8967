#include "tensor/dtype.h"

#include "base/check.h"

namespace quire {

float ToFloat(F16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000) << 16;
  const uint32_t exponent = x.bits >> 10 & 31;
  const uint32_t fraction = x.bits & 0x3FF;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000 | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float small = static_cast<float>(fraction) * 0x1p-24f;  // subnormal: exact in float32
  return sign ? -small : small;
}

F16 ToF16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return {static_cast<uint16_t>(sign | 0x7E00)};
  if (magnitude >= 0x477FF000) return {static_cast<uint16_t>(sign | 0x7C00)};  // 65520 and more
  if (magnitude < 0x38800000) {                                                // below 2^-14: subnormal steps of 2^-24
    const float step = std::bit_cast<float>(magnitude) + 0.5f;  // the sum's last place is 2^-24: rounded to even there
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(step) - 0x3F000000))};
  }
  const uint32_t rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
  return {static_cast<uint16_t>(sign | (rounded - 0x38000000) >> 13)};
}

namespace {
template <typename T>
void Convert(const void* source, float* out, size_t count) {
  const T* in = static_cast<const T*>(source);
  for (size_t i = 0; i < count; ++i) out[i] = ToFloat(in[i]);
}
}  // namespace

void ConvertToFloat(const void* source, DType type, float* out, size_t count) {
  switch (type) {
    case DType::kF32:
      std::memcpy(out, source, count * sizeof(float));
      return;
    case DType::kBf16:
      Convert<Bf16>(source, out, count);
      return;
    case DType::kF16:
      Convert<F16>(source, out, count);
      return;
    default:
      QUIRE_CHECK(false && "a floating dtype");
  }
}

}  // namespace quire
