#include "tokenizer/byte_level.h"

#include <array>
#include <cstdint>

#include "base/utf8.h"

namespace quire {
namespace {

constexpr int kAlphabetEnd = 256 + 68;  // one past the largest character

struct Alphabet {
  std::array<uint16_t, 256> char_of;          // by byte
  std::array<int16_t, kAlphabetEnd> byte_of;  // by character, -1: none
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet{};
  alphabet.byte_of.fill(-1);
  uint16_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    const uint16_t character = printable ? static_cast<uint16_t>(byte) : next++;
    alphabet.char_of[byte] = character;
    alphabet.byte_of[character] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

std::string SpellBytes(std::string_view bytes) {
  std::string spelled;
  for (const char byte : bytes) AppendUtf8(&spelled, kAlphabet.char_of[static_cast<unsigned char>(byte)]);
  return spelled;
}

std::optional<std::string> UnspellBytes(std::string_view spelled) {
  std::string bytes;
  for (size_t at = 0; at < spelled.size();) {
    const Utf8Char c = DecodeUtf8(spelled, at);
    if (c.code >= kAlphabetEnd || kAlphabet.byte_of[c.code] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.byte_of[c.code]));
    at += c.bytes;
  }
  return bytes;
}

}  // namespace quire
