#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/mmap_file.h"
#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/tokenizer_json.h"

namespace quire {
namespace {

// The bytes of a vocabulary entry. One that is not spelled in the byte-level alphabet (the bars of
// "<｜end▁of▁sentence｜>") stands for itself.
std::string VocabBytes(const std::string& spelled) {
  return UnspellBytes(spelled).value_or(spelled);
}

size_t BytesHash(std::string_view bytes) {
  return std::hash<std::string_view>()(bytes);
}

}  // namespace

Tokenizer Tokenizer::Load(const std::string& tokenizer_json_path) {
  const MmapFile file(tokenizer_json_path);
  const auto bytes = file.bytes();
  return Parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, tokenizer_json_path);
}

Tokenizer Tokenizer::Parse(std::string_view tokenizer_json, std::string_view name) {
  const TokenizerJson json = ParseTokenizerJson(tokenizer_json, name);
  try {
    return {json, name};
  } catch (const Error& error) {
    throw error.Within(name);
  }
}

Tokenizer::Tokenizer(const TokenizerJson& json, std::string_view name)
    : name_(name), id_by_bytes_(json.vocab.size() + json.added_tokens.size()) {
  int32_t last_id = -1;
  for (const auto& [text, id] : json.vocab) last_id = std::max(last_id, id);
  for (const AddedToken& token : json.added_tokens) last_id = std::max(last_id, token.id);
  tokens_.resize(last_id + 1);
  for (const auto& [text, id] : json.vocab) AddToken(id, VocabBytes(text), false);
  for (const AddedToken& token : json.added_tokens) {
    AddToken(token.id, token.text, token.special);
    (token.normalized ? added_normalized_ : added_).Add(token.text, token.id);
  }
  for (const std::string& pattern : json.patterns) patterns_.emplace_back(pattern);
  bpe_ = MakeBpe(json);
}

void Tokenizer::AddToken(int32_t id, std::string bytes, bool special) {
  Token& token = tokens_[id];
  token.special |= special;
  if (token.bytes == bytes) return;  // an added token may be in the vocabulary too
  if (!token.bytes.empty())
    throw Error(ErrorKind::kBadModel, "wanted one token with the id " + std::to_string(id) + ", found \"" +
                                          token.bytes + "\" and \"" + bytes + "\"");
  if (const auto known = Find(bytes))
    throw Error(ErrorKind::kBadModel, "wanted one id for the token \"" + bytes + "\", found " + std::to_string(*known) +
                                          " and " + std::to_string(id));
  token.bytes = std::move(bytes);
  id_by_bytes_.Add(BytesHash(token.bytes), id);
}

Bpe Tokenizer::MakeBpe(const TokenizerJson& json) const {
  auto id_of = [this](const std::string& spelled) {
    if (const auto id = Find(VocabBytes(spelled))) return *id;
    throw Error(ErrorKind::kBadModel, "wanted the token \"" + spelled + "\", found none", "model: vocab");
  };
  std::array<int32_t, 256> byte_ids;  // all of them: no text can then meet an unknown token
  for (int byte = 0; byte < 256; ++byte) byte_ids[byte] = id_of(SpellBytes(std::string(1, static_cast<char>(byte))));
  std::vector<Bpe::Merge> merges;
  merges.reserve(json.merges.size());
  for (const auto& [left, right] : json.merges) merges.push_back({id_of(left), id_of(right), id_of(left + right)});
  return {byte_ids, std::move(merges)};
}

std::vector<int32_t> Tokenizer::Encode(std::string_view text) const {
  if (text.size() > std::numeric_limits<int32_t>::max())
    throw Error(ErrorKind::kTooLarge, "wanted at most 2 GiB of text, found " + std::to_string(text.size()) + " bytes");
  std::string repaired;
  if (!IsUtf8(text)) text = repaired = RepairUtf8(text);
  std::vector<AddedTokens::Part> parts, raw_parts;
  added_.Split(text, &raw_parts);
  for (const AddedTokens::Part& part : raw_parts) {
    if (part.id == AddedTokens::kText) {
      added_normalized_.Split(part.text, &parts);
    } else {
      parts.push_back(part);
    }
  }
  std::vector<int32_t> ids;
  for (const AddedTokens::Part& part : parts) {
    if (part.id == AddedTokens::kText) {
      EncodeText(part.text, &ids);
    } else {
      ids.push_back(part.id);
    }
  }
  return ids;
}

void Tokenizer::EncodeText(std::string_view text, std::vector<int32_t>* ids) const {
  std::vector<std::string_view> pieces = {text}, finer;
  for (const SplitPattern& pattern : patterns_) {
    finer.clear();
    for (const std::string_view piece : pieces) pattern.Split(piece, &finer);
    pieces.swap(finer);
  }
  for (const std::string_view piece : pieces) bpe_.Encode(piece, ids);
}

std::string Tokenizer::Decode(std::span<const int32_t> ids) const {
  std::string bytes;
  for (const int32_t id : ids) bytes += Bytes(id);
  return RepairUtf8(bytes);
}

std::optional<int32_t> Tokenizer::Find(std::string_view text) const {
  const int32_t id =
      id_by_bytes_.Find(BytesHash(text), [&](int32_t candidate) { return tokens_[candidate].bytes == text; });
  return id == HashIndex::kNone ? std::nullopt : std::optional(id);
}

int32_t Tokenizer::TokenOrThrow(std::string_view text) const {
  if (const auto id = Find(text)) return *id;
  throw Error(ErrorKind::kBadModel, "wanted the token \"" + std::string(text) + "\", found none", name_,
              "this is not the tokenizer of a DeepSeek-OCR model");
}

const std::string& Tokenizer::Bytes(int32_t id) const {
  static const std::string kEmpty;
  return Has(id) ? tokens_[id].bytes : kEmpty;
}

bool Tokenizer::IsSpecial(int32_t id) const {
  return Has(id) && tokens_[id].special;
}

}  // namespace quire
