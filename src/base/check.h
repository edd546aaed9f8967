// Checks for bugs of ours. A failed check throws Error{kInternal} with both values, so that a server lives on and fails
// one request only. Nothing that a user sends may reach one: test the input before and throw an Error of its own kind.
#pragma once

#include <sstream>
#include <string>

namespace quire {

[[noreturn]] void CheckFailed(const char* file, int line, const std::string& text);

namespace internal {
template <typename A, typename B>
[[noreturn]] void CheckOpFailed(const char* file, int line, const char* expr, const A& a, const B& b) {
  std::ostringstream text;
  text << expr << " does not hold: " << a << " against " << b;
  CheckFailed(file, line, text.str());
}
}  // namespace internal

#define QUIRE_CHECK(cond)                                         \
  do {                                                            \
    if (!(cond)) ::quire::CheckFailed(__FILE__, __LINE__, #cond); \
  } while (0)
#define QUIRE_CHECK_OP_(a, op, b)                                                                  \
  do {                                                                                             \
    const auto& check_a_ = (a);                                                                    \
    const auto& check_b_ = (b);                                                                    \
    if (!(check_a_ op check_b_))                                                                   \
      ::quire::internal::CheckOpFailed(__FILE__, __LINE__, #a " " #op " " #b, check_a_, check_b_); \
  } while (0)
#define QUIRE_CHECK_EQ(a, b) QUIRE_CHECK_OP_(a, ==, b)
#define QUIRE_CHECK_LE(a, b) QUIRE_CHECK_OP_(a, <=, b)
#define QUIRE_CHECK_LT(a, b) QUIRE_CHECK_OP_(a, <, b)
#define QUIRE_CHECK_GE(a, b) QUIRE_CHECK_OP_(a, >=, b)
#define QUIRE_CHECK_GT(a, b) QUIRE_CHECK_OP_(a, >, b)

}  // namespace quire
