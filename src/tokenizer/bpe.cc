#include "tokenizer/bpe.h"

#include <functional>
#include <queue>
#include <utility>

namespace quire {
namespace {

constexpr int32_t kNone = -1;

// An element of the piece's list of tokens; it stands where its first byte stood.
struct Symbol {
  int32_t id, previous, next;
};

size_t PairHash(int32_t left, int32_t right) {
  const uint64_t pair = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  const uint64_t product = pair * 0x9E3779B97F4A7C15;  // 2^64 / golden ratio: its high bits are the mixed ones
  return product ^ product >> 32;
}

}  // namespace

Bpe::Bpe(const std::array<int32_t, 256>& byte_ids, std::vector<Merge> merges)
    : byte_ids_(byte_ids), merges_(std::move(merges)), merge_by_pair_(merges_.size()) {
  for (size_t rank = 0; rank < merges_.size(); ++rank)
    merge_by_pair_.Add(PairHash(merges_[rank].left, merges_[rank].right), static_cast<int32_t>(rank));
}

int32_t Bpe::FindMerge(int32_t left, int32_t right) const {
  return merge_by_pair_.Find(PairHash(left, right),
                             [&](int32_t rank) { return merges_[rank].left == left && merges_[rank].right == right; });
}

void Bpe::Encode(std::string_view piece, std::vector<int32_t>* ids) const {
  const auto length = static_cast<int32_t>(piece.size());
  if (length == 0) return;
  std::vector<Symbol> symbols(piece.size());
  for (int32_t at = 0; at < length; ++at) {
    const int32_t id = byte_ids_[static_cast<unsigned char>(piece[at])];
    symbols[at] = {id, at - 1, at + 1 < length ? at + 1 : kNone};
  }

  // Merges that were possible when they were queued: (rank, where), best first and then from left to right.
  using Candidate = std::pair<int32_t, int32_t>;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  auto merge_at = [&](int32_t at) {
    const Symbol& left = symbols[at];
    if (left.id == kNone || left.next == kNone) return HashIndex::kNone;
    return FindMerge(left.id, symbols[left.next].id);
  };
  auto consider = [&](int32_t at) {
    if (at == kNone) return;
    if (const int32_t rank = merge_at(at); rank != HashIndex::kNone) candidates.emplace(rank, at);
  };
  for (int32_t at = 0; at < length; ++at) consider(at);

  while (!candidates.empty()) {
    const auto [rank, at] = candidates.top();
    candidates.pop();
    if (merge_at(at) != rank) continue;  // one of the two was merged meanwhile
    Symbol& left = symbols[at];
    Symbol& right = symbols[left.next];
    left.id = merges_[rank].result;
    left.next = right.next;
    right.id = kNone;
    if (left.next != kNone) symbols[left.next].previous = at;
    consider(left.previous);
    consider(at);
  }
  for (int32_t at = 0; at != kNone; at = symbols[at].next) ids->push_back(symbols[at].id);
}

}  // namespace quire
