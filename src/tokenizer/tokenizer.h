// Text to token ids and back, by a model's tokenizer.json: byte-level BPE (spec: Hugging Face tokenizers).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/hash_index.h"
#include "tokenizer/split_pattern.h"

namespace quire {

struct TokenizerJson;

// Immutable once loaded: any number of threads may use one.
class Tokenizer {
 public:
  // Throws Error{kNotFound, kIo} when the file cannot be read, Error{kBadModel} with path, place in the file and cause
  // when it is damaged or of a kind not known here.
  static Tokenizer Load(const std::string& tokenizer_json_path);
  // The same from the text of such a file; name stands in for the path.
  static Tokenizer Parse(std::string_view tokenizer_json, std::string_view name);

  // Ids of text: added tokens ("<image>") first, the rest by the Split patterns and BPE. No begin token is put in
  // front. Ill-formed UTF-8 is repaired first. Throws Error{kUnsupported} for text beside added tokens in a build
  // without PCRE2.
  std::vector<int32_t> Encode(std::string_view text) const;

  // Text of ids, specials included, well-formed: bytes that are no UTF-8 become U+FFFD. Ids without a token add
  // nothing.
  std::string Decode(std::span<const int32_t> ids) const;

  // The token whose bytes are text, as "<td>" or "\n".
  std::optional<int32_t> Find(std::string_view text) const;
  // The same for a token that a model cannot do without; throws Error{kBadModel} naming it.
  int32_t TokenOrThrow(std::string_view text) const;

  // Bytes that a token adds to the text, perhaps a part of a UTF-8 character; empty for ids without a token
  // (checkpoints pad their embedding table past the last one). Lives as long as the tokenizer.
  const std::string& Bytes(int32_t id) const;
  // Whether the file calls the token special. The begin, end and pad tokens are, but so are "<td>" and "<|ref|>", which
  // belong to the text.
  bool IsSpecial(int32_t id) const;
  // One past the largest id.
  size_t size() const { return tokens_.size(); }

 private:
  struct Token {
    std::string bytes;
    bool special = false;
  };
  Tokenizer(const TokenizerJson& json, std::string_view name);
  void AddToken(int32_t id, std::string bytes, bool special);
  Bpe MakeBpe(const TokenizerJson& json) const;
  bool Has(int32_t id) const { return id >= 0 && static_cast<size_t>(id) < tokens_.size(); }
  void EncodeText(std::string_view text, std::vector<int32_t>* ids) const;

  std::string name_;
  std::vector<Token> tokens_;  // by id
  HashIndex id_by_bytes_;
  AddedTokens added_;
  AddedTokens added_normalized_;
  std::vector<SplitPattern> patterns_;
  Bpe bpe_;
};

}  // namespace quire
