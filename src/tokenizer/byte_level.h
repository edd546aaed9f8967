// The spelling of bytes as printable characters that byte-level vocabularies use.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace quire {

// Each byte as one character: the printable ones of Latin-1 as themselves, the other 68 as U+0100 and up, in order
// ("\n" is U+010A, a blank U+0120). Source: bytes_to_unicode of GPT-2's encoder.py.
std::string SpellBytes(std::string_view bytes);

// The bytes that such a spelling stands for; none when it holds a character outside that alphabet.
std::optional<std::string> UnspellBytes(std::string_view spelled);

}  // namespace quire
