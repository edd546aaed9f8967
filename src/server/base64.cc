#include "server/base64.h"

#include <array>

namespace quire {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr int8_t kBlank = -1, kPadding = -2, kForeign = -3;

constexpr std::array<int8_t, 256> MakeValues() {
  std::array<int8_t, 256> values{};
  values.fill(kForeign);
  for (size_t i = 0; i < kAlphabet.size(); ++i) values[static_cast<uint8_t>(kAlphabet[i])] = static_cast<int8_t>(i);
  for (const char blank : {' ', '\t', '\r', '\n'}) values[static_cast<uint8_t>(blank)] = kBlank;
  values['='] = kPadding;
  return values;
}
constexpr std::array<int8_t, 256> kValues = MakeValues();

}  // namespace

std::optional<std::vector<uint8_t>> DecodeBase64(std::string_view text) {
  std::vector<uint8_t> bytes;
  bytes.reserve(text.size() / 4 * 3 + 3);
  uint32_t group = 0;
  int digits = 0, padding = 0;
  for (const char c : text) {
    const int8_t value = kValues[static_cast<uint8_t>(c)];
    if (value == kBlank) continue;
    if (value == kPadding) {
      ++padding;
      continue;
    }
    if (value == kForeign || padding > 0) return std::nullopt;
    group = group << 6 | static_cast<uint32_t>(value);
    if (++digits % 4 == 0)
      for (const int shift : {16, 8, 0}) bytes.push_back(static_cast<uint8_t>(group >> shift));
  }
  const int rest = digits % 4;
  if (rest == 1 || padding > 2 || (padding > 0 && (rest + padding) != 4)) return std::nullopt;
  group <<= 6 * (4 - rest);
  if (rest >= 2) bytes.push_back(static_cast<uint8_t>(group >> 16));
  if (rest == 3) bytes.push_back(static_cast<uint8_t>(group >> 8));
  return bytes;
}

std::string EncodeBase64(std::span<const uint8_t> bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (k < count ? bytes[i + k] : 0u);
    for (size_t k = 0; k < 4; ++k) text += k <= count ? kAlphabet[group >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

}  // namespace quire
