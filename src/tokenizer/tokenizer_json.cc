#include "tokenizer/tokenizer_json.h"

#include "base/error.h"
#include "base/json.h"

namespace quire {
namespace {

[[noreturn]] void Refuse(const std::string& what, std::string_view where = {}) {
  throw Error(ErrorKind::kBadModel, what, std::string(where));
}

// Runs read and puts place before the place of what it complains about.
template <typename Read>
auto Within(std::string_view place, Read read) {
  try {
    return read();
  } catch (const Error& error) {
    throw error.Within(place);
  }
}

template <typename Read>
void ForEach(const Json::Array& items, Read read) {
  size_t at = 0;
  try {
    for (; at < items.size(); ++at) read(items[at]);
  } catch (const Error& error) {
    throw error.Within("item " + std::to_string(at));
  }
}

const Json& Object(const Json& parent, std::string_view key) {
  const Json& member = parent.At(key);
  Within(key, [&] { member.as_object(); });
  return member;
}

const Json::Array& Array(const Json& parent, std::string_view key) {
  const Json& member = parent.At(key);
  return *Within(key, [&] { return &member.as_array(); });
}

const std::string& String(const Json& parent, std::string_view key) {
  const Json& member = parent.At(key);
  return *Within(key, [&] { return &member.as_string(); });
}

// Absent and null are false.
bool Flag(const Json& parent, std::string_view key) {
  const Json* member = parent.Find(key);
  return member && !member->is_null() && Within(key, [&] { return member->as_bool(); });
}

// A setting that must have the one value for which ids are computed here; absent and null stand for that value too.
void Want(const Json& parent, std::string_view key, const Json& wanted) {
  const Json* member = parent.Find(key);
  if (member && !member->is_null() && !(*member == wanted))
    Refuse("wanted " + wanted.Dump() + ", found " + member->Dump() + ", which is not supported", key);
}

void WantType(const Json& step, std::string_view wanted) {
  const std::string& type = String(step, "type");
  if (type != wanted)
    Refuse("wanted the type \"" + std::string(wanted) + "\", found \"" + type + "\", which is not supported");
}

int32_t TokenId(const Json& id) {
  const int64_t value = id.as_int();
  if (value < 0 || value >= kMaxTokenId)
    Refuse("wanted an id from 0 to " + std::to_string(kMaxTokenId - 1) + ", found " + std::to_string(value));
  return static_cast<int32_t>(value);
}

void ReadVocab(const Json::Object& vocab, TokenizerJson* out) {
  out->vocab.reserve(vocab.size());
  for (const auto& [token, id] : vocab)
    out->vocab.emplace_back(token, Within(token, [&id = id] { return TokenId(id); }));
}

std::pair<std::string, std::string> ReadMerge(const Json& merge) {
  if (merge.is_array()) {
    const Json::Array& pair = merge.as_array();
    if (pair.size() != 2) Refuse("wanted two tokens, found " + std::to_string(pair.size()));
    return {pair[0].as_string(), pair[1].as_string()};
  }
  const std::string& text = merge.as_string();
  const size_t blank = text.find(' ');
  if (blank == std::string::npos || text.find(' ', blank + 1) != std::string::npos)
    Refuse("wanted two tokens with one blank between, found \"" + text + "\"");
  return {text.substr(0, blank), text.substr(blank + 1)};
}

void ReadModel(const Json& model, TokenizerJson* out) {
  WantType(model, "BPE");
  Want(model, "dropout", 0.0);
  Want(model, "ignore_merges", false);
  for (const auto* key : {"continuing_subword_prefix", "end_of_word_suffix"}) Want(model, key, "");
  Within("vocab", [&] { ReadVocab(model.At("vocab").as_object(), out); });
  const Json::Array& merges = Array(model, "merges");
  out->merges.reserve(merges.size());
  Within("merges", [&] { ForEach(merges, [&](const Json& merge) { out->merges.push_back(ReadMerge(merge)); }); });
}

void ReadAddedToken(const Json& token, TokenizerJson* out) {
  for (const auto* key : {"single_word", "lstrip", "rstrip"}) Want(token, key, false);
  const int32_t id = Within("id", [&] { return TokenId(token.At("id")); });
  const std::string& text = String(token, "content");
  if (text.empty()) Refuse("wanted a text, found an empty one", "content");
  out->added_tokens.push_back({id, text, Flag(token, "special"), Flag(token, "normalized")});
}

void WantByteLevel(const Json& step) {
  WantType(step, "ByteLevel");
  Want(step, "add_prefix_space", false);
  if (const Json* use_regex = step.Find("use_regex"); !use_regex || *use_regex != Json(false))
    Refuse("wanted false, found the built-in pattern of GPT-2, which is not supported", "use_regex");
}

void ReadSplit(const Json& step, TokenizerJson* out) {
  WantType(step, "Split");
  Want(step, "behavior", "Isolated");
  Want(step, "invert", false);
  const Json& pattern = Object(step, "pattern");
  out->patterns.push_back(Within("pattern", [&] { return String(pattern, "Regex"); }));
}

void ReadPreTokenizer(const Json& pre_tokenizer, TokenizerJson* out) {
  if (String(pre_tokenizer, "type") == "ByteLevel") return WantByteLevel(pre_tokenizer);
  WantType(pre_tokenizer, "Sequence");
  const Json::Array& steps = Array(pre_tokenizer, "pretokenizers");
  if (steps.empty()) Refuse("wanted Split steps and a ByteLevel step, found none");
  Within("pretokenizers", [&] {
    ForEach(steps, [&](const Json& step) { &step == &steps.back() ? WantByteLevel(step) : ReadSplit(step, out); });
  });
}

void WantNoNormalizer(const Json& file) {
  const Json* normalizer = file.Find("normalizer");
  if (!normalizer || normalizer->is_null()) return;
  Within("normalizer", [&] {
    WantType(*normalizer, "Sequence");
    const Json::Array& steps = Array(*normalizer, "normalizers");
    if (!steps.empty())
      Refuse("wanted no normalizer, found \"" + String(steps[0], "type") + "\", which is not supported");
  });
}

TokenizerJson Read(const Json& file) {
  TokenizerJson out;
  file.as_object();
  WantNoNormalizer(file);
  const Json& pre_tokenizer = Object(file, "pre_tokenizer");
  Within("pre_tokenizer", [&] { ReadPreTokenizer(pre_tokenizer, &out); });
  const Json& decoder = Object(file, "decoder");
  Within("decoder", [&] { WantType(decoder, "ByteLevel"); });
  const Json& model = Object(file, "model");
  Within("model", [&] { ReadModel(model, &out); });
  const Json::Array& added_tokens = Array(file, "added_tokens");
  Within("added_tokens", [&] { ForEach(added_tokens, [&](const Json& token) { ReadAddedToken(token, &out); }); });
  return out;
}

}  // namespace

TokenizerJson ParseTokenizerJson(std::string_view text, std::string_view name) {
  try {
    return Within(name, [&] { return Read(Json::Parse(text, "")); });
  } catch (const Error& error) {
    throw Error(ErrorKind::kBadModel, error.message(), error.where(),
                "the tokenizer.json of a DeepSeek-OCR model is wanted");
  }
}

}  // namespace quire
