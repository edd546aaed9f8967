// Tokens that are cut out of the raw text before anything else is done to it.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace quire {

class AddedTokens {
 public:
  // text: not empty. A text added again takes the new id.
  void Add(std::string_view text, int32_t id);

  struct Part {
    std::string_view text;
    int32_t id;  // kText: ordinary text
  };
  static constexpr int32_t kText = -1;

  // Cuts text at every added token, the leftmost first and of those the longest; appends the parts, none empty.
  void Split(std::string_view text, std::vector<Part>* parts) const;

 private:
  // The longest token that text begins with; an empty part when there is none.
  Part Longest(std::string_view text) const;

  // A trie over bytes: children by node << 8 | byte; node 0 is the root.
  std::unordered_map<uint64_t, uint32_t> children_;
  std::vector<int32_t> id_at_ = {kText};  // by node; kText: no token ends there
};

}  // namespace quire
