#pragma once

#include <cstdarg>
#include <cstdio>
#include <string>

namespace quire {

// A line as printf writes it.
[[gnu::format(printf, 1, 2)]] inline std::string Print(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

}  // namespace quire
