// Element types, with the conversions between float32 and the 16-bit forms.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace quire {

enum class DType : uint8_t { kF32, kBf16, kF16, kI64, kI32, kU8 };

constexpr size_t SizeOf(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBf16:
    case DType::kF16:
      return 2;
    case DType::kI64:
      return 8;
    case DType::kU8:
      return 1;
  }
  return 0;
}

// "float32", as in config files and messages.
constexpr std::string_view Name(DType type) {
  constexpr std::string_view kNames[] = {"float32", "bfloat16", "float16", "int64", "int32", "uint8"};
  return kNames[static_cast<int>(type)];
}

// The upper half of a float32; storage only, arithmetic is done in float.
struct Bf16 {
  uint16_t bits;
  bool operator==(const Bf16&) const = default;
};
struct F16 {
  uint16_t bits;
  bool operator==(const F16&) const = default;
};

inline float ToFloat(Bf16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}
inline float ToFloat(float x) {
  return x;
}
float ToFloat(F16 x);

// Round to nearest, ties to even; NaN stays NaN.
inline Bf16 ToBf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return {static_cast<uint16_t>(bits >> 16 | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
}
F16 ToF16(float x);

// The value that float x has after a trip through bf16.
inline float RoundToBf16(float x) {
  return ToFloat(ToBf16(x));
}

template <typename T>
constexpr DType kDTypeOf = DType::kU8;
template <>
inline constexpr DType kDTypeOf<float> = DType::kF32;
template <>
inline constexpr DType kDTypeOf<Bf16> = DType::kBf16;
template <>
inline constexpr DType kDTypeOf<F16> = DType::kF16;
template <>
inline constexpr DType kDTypeOf<int64_t> = DType::kI64;
template <>
inline constexpr DType kDTypeOf<int32_t> = DType::kI32;
template <>
inline constexpr DType kDTypeOf<uint8_t> = DType::kU8;

// Elements as float32; source is any floating dtype. Both ranges hold count elements and do not overlap.
void ConvertToFloat(const void* source, DType type, float* out, size_t count);

}  // namespace quire
