// Finds a few fixed words in text that comes in chunks, holding back only what may still become one of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace quire {

// The literals share their first character, which stands nowhere else in any of them, and none begins another one; so a
// failed match never hides a later one, and the scan is linear. The span must outlive the scanner.
class LiteralScanner {
 public:
  explicit LiteralScanner(std::span<const std::string_view> literals) : literals_(literals) {}

  // Calls on_text(string_view) and on_literal(index) for all of text that is decided, in order.
  template <typename OnText, typename OnLiteral>
  void Push(std::string_view text, OnText on_text, OnLiteral on_literal) {
    const char first = literals_[0][0];
    while (!text.empty()) {
      if (held_.empty()) {
        const size_t start = std::min(text.find(first), text.size());
        if (start > 0) on_text(text.substr(0, start));
        text.remove_prefix(start);
        if (text.empty()) return;
      }
      held_ += text.front();
      const auto literal =
          std::ranges::find_if(literals_, [this](std::string_view candidate) { return candidate.starts_with(held_); });
      if (literal == literals_.end()) {
        held_.pop_back();
        Flush(on_text);
        continue;
      }
      text.remove_prefix(1);
      if (literal->size() == held_.size()) {
        held_.clear();
        on_literal(static_cast<size_t>(literal - literals_.begin()));
      }
    }
  }

  // The text ends here: what was held back is text.
  template <typename OnText>
  void Flush(OnText on_text) {
    if (!held_.empty()) on_text(std::string_view(held_));
    held_.clear();
  }

 private:
  std::span<const std::string_view> literals_;
  std::string held_;  // a proper beginning of a literal
};

}  // namespace quire
