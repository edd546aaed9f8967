// Byte-pair encoding: a piece of text to token ids by ranked merges (Sennrich et al. 2016, over bytes as in GPT-2).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/hash_index.h"

namespace quire {

class Bpe {
 public:
  // Two neighbours left, right become result.
  struct Merge {
    int32_t left, right, result;
  };

  Bpe() = default;
  // byte_ids: the token of each byte. merges: of all that are possible in a piece the first is made first; of a pair
  // that is there twice the first counts.
  Bpe(const std::array<int32_t, 256>& byte_ids, std::vector<Merge> merges);

  // Appends the ids of piece, which has less than 2^31 bytes. O(n log n): a piece may be a megabyte long.
  void Encode(std::string_view piece, std::vector<int32_t>* ids) const;

 private:
  int32_t FindMerge(int32_t left, int32_t right) const;  // index into merges_ or HashIndex::kNone

  std::array<int32_t, 256> byte_ids_{};
  std::vector<Merge> merges_;
  HashIndex merge_by_pair_;
};

}  // namespace quire
