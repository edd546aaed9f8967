#include "engine/stop_strings.h"

#include <algorithm>
#include <utility>

namespace quire {

void StopStrings::Search::Advance(char c) {
  while (matched > 0 && string[matched] != c) matched = borders[matched - 1];
  if (string[matched] == c) ++matched;
}

StopStrings::StopStrings(const std::vector<std::string>& strings) {
  for (const std::string& string : strings) {
    Search& search = searches_.emplace_back(Search{.string = string, .borders = {0}});
    for (const char c : std::string_view(string).substr(1)) {
      search.Advance(c);
      search.borders.push_back(search.matched);
    }
    search.matched = 0;
  }
}

std::string StopStrings::Push(std::string_view piece) {
  if (!found_.empty() || piece.empty()) return "";
  size_t open = 0;  // bytes at the end that may begin a stop string
  for (const char c : piece) {
    held_ += c;
    open = 0;
    for (Search& search : searches_) {
      search.Advance(c);
      open = std::max(open, search.matched);
      if (search.matched == search.string.size() && search.string.size() > found_.size()) found_ = search.string;
    }
    if (found_.empty()) continue;
    held_.resize(held_.size() - found_.size());
    return Finish();
  }
  std::string text = held_.substr(0, held_.size() - open);
  held_.erase(0, text.size());
  return text;
}

std::string StopStrings::Finish() {
  return std::exchange(held_, {});
}

}  // namespace quire
