#include "tokenizer/added_tokens.h"

namespace quire {
namespace {

uint64_t ChildKey(uint32_t node, char byte) {
  return static_cast<uint64_t>(node) << 8 | static_cast<unsigned char>(byte);
}

}  // namespace

void AddedTokens::Add(std::string_view text, int32_t id) {
  uint32_t node = 0;
  for (const char byte : text) {
    const auto [child, is_new] = children_.try_emplace(ChildKey(node, byte), static_cast<uint32_t>(id_at_.size()));
    if (is_new) id_at_.push_back(kText);
    node = child->second;
  }
  id_at_[node] = id;
}

AddedTokens::Part AddedTokens::Longest(std::string_view text) const {
  Part longest{{}, kText};
  uint32_t node = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const auto child = children_.find(ChildKey(node, text[at]));
    if (child == children_.end()) break;
    node = child->second;
    if (id_at_[node] != kText) longest = {text.substr(0, at + 1), id_at_[node]};
  }
  return longest;
}

void AddedTokens::Split(std::string_view text, std::vector<Part>* parts) const {
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const Part token = Longest(text.substr(at));
    if (token.id == kText) {
      ++at;
      continue;
    }
    if (at > done) parts->push_back({text.substr(done, at - done), kText});
    parts->push_back(token);
    done = at += token.text.size();
  }
  if (done < text.size()) parts->push_back({text.substr(done), kText});
}

}  // namespace quire
