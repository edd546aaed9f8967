// The file tokenizer.json (Hugging Face tokenizers) as plain values, checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire {

struct AddedToken {
  int32_t id;
  std::string text;
  bool special;     // a mark, not text
  bool normalized;  // looked for after the other added tokens, in what they leave
};

// What byte-level BPE needs of the file. Normalizer, decoder and post-processor are checked and not kept: a reader of
// this file neither normalizes nor adds tokens of its own (the engine places the begin token).
struct TokenizerJson {
  std::vector<std::pair<std::string, int32_t>> vocab;       // token as spelled in the file, id
  std::vector<std::pair<std::string, std::string>> merges;  // best first
  std::vector<AddedToken> added_tokens;
  std::vector<std::string> patterns;  // of the Split steps, in order
};

// Ids at and above this are refused: the largest vocabularies have a quarter of a million.
inline constexpr int32_t kMaxTokenId = 1 << 22;

// Reads the text of a tokenizer.json, with merges as "a b" or as ["a", "b"]. Throws Error{kBadModel} with name, the
// place in the file and the cause: damaged JSON, a missing or wrongly typed field, or a kind of normalizer,
// pre-tokenizer, decoder or model that would give other ids than those computed here.
TokenizerJson ParseTokenizerJson(std::string_view text, std::string_view name);

}  // namespace quire
