// UTF-8: strict decoding, checking and repair (RFC 3629: no overlong forms, no surrogates, at most U+10FFFF).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace quire {

struct Utf8Char {
  char32_t code;  // U+FFFD where the bytes are not UTF-8
  size_t bytes;   // bytes taken: at least 1 (an ill-formed sequence takes its maximal valid prefix, Unicode 3.9)
  bool valid;
};

// The character at text[at]; at < text.size().
Utf8Char DecodeUtf8(std::string_view text, size_t at);
void AppendUtf8(std::string* text, char32_t code);

bool IsUtf8(std::string_view text);
// Every ill-formed sequence becomes U+FFFD.
std::string RepairUtf8(std::string_view text);
// Characters (code points) of a text in UTF-8.
size_t CountUtf8(std::string_view text);
// Bytes at the end of text that begin a character whose rest is not there yet (0 to 3).
size_t IncompleteUtf8Tail(std::string_view text);

}  // namespace quire
