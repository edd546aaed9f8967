// White space at the borders of blocks.
#pragma once

#include <string_view>

namespace quire {

inline constexpr std::string_view kBlanks = " \t\r\n";

inline bool IsBlank(std::string_view text) {
  return text.find_first_not_of(kBlanks) == text.npos;
}

inline std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

}  // namespace quire
