#include "tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace quire {
namespace {

// The definition, word for word: again and again the first merge of the list that is possible, at its leftmost place.
std::vector<int32_t> EncodeSlowly(const std::vector<Bpe::Merge>& merges, std::string_view piece) {
  std::vector<int32_t> ids(piece.begin(), piece.end());
  auto merge_once = [&] {
    for (const Bpe::Merge& merge : merges)
      for (size_t i = 0; i + 1 < ids.size(); ++i)
        if (ids[i] == merge.left && ids[i + 1] == merge.right) {
          ids[i] = merge.result;
          ids.erase(ids.begin() + i + 1);
          return true;
        }
    return false;
  };
  while (merge_once()) {
  }
  return ids;
}

TEST(BpeTest, AgreesWithTheDefinition) {
  std::array<int32_t, 256> byte_ids;
  for (int byte = 0; byte < 256; ++byte) byte_ids[byte] = byte;
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<int32_t> symbols = {'a', 'b', 'c'};  // few, so that merges compete
    std::vector<Bpe::Merge> merges;
    for (int32_t id = 256; id < 276; ++id) {
      merges.push_back({symbols[random() % symbols.size()], symbols[random() % symbols.size()], id});
      symbols.push_back(id);
    }
    const Bpe bpe(byte_ids, merges);
    for (int i = 0; i < 50; ++i) {
      std::string piece;
      for (size_t left = random() % 40; left > 0; --left) piece.push_back(static_cast<char>('a' + random() % 3));
      std::vector<int32_t> ids;
      bpe.Encode(piece, &ids);
      ASSERT_EQ(ids, EncodeSlowly(merges, piece)) << piece;
    }
  }
}

}  // namespace
}  // namespace quire
