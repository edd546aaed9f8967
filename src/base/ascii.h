// Text of protocols and markup, byte by byte: what is not ASCII stays as it is.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace quire {

inline constexpr std::string_view kBlanks = " \t\r\n";

inline bool IsBlank(std::string_view text) {
  return text.find_first_not_of(kBlanks) == text.npos;
}

// Without the blanks at its ends.
inline std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

inline std::string Lower(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return lower;
}

}  // namespace quire
