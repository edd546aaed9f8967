#include "tokenizer/stream_decoder.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace quire {

std::vector<int32_t> QuietIds(const Tokenizer& tokenizer, int32_t bos_id, int32_t eos_id) {
  std::vector<int32_t> ids{bos_id, eos_id};
  if (const auto pad = tokenizer.Find("<｜▁pad▁｜>")) ids.push_back(*pad);
  return ids;
}

std::string StreamDecoder::Push(int32_t id) {
  if (std::find(skip_.begin(), skip_.end(), id) != skip_.end()) return {};
  pending_ += tokenizer_.Bytes(id);
  const size_t complete = pending_.size() - IncompleteUtf8Tail(pending_);
  std::string text = RepairUtf8(std::string_view(pending_).substr(0, complete));
  pending_.erase(0, complete);
  return text;
}

std::string StreamDecoder::Finish() {
  return RepairUtf8(std::exchange(pending_, {}));
}

}  // namespace quire
