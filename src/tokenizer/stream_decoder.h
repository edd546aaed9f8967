// Text of tokens as they come.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace quire {

// The ids that are no text in a sequence: begin, end, and pad where there is one.
std::vector<int32_t> QuietIds(const Tokenizer& tokenizer, int32_t bos_id, int32_t eos_id);

// Turns one sequence's ids into pieces of well-formed UTF-8, never with half a character. The pieces together are
// tokenizer.Decode(ids without the skipped ones). One thread at a time; the tokenizer outlives it.
class StreamDecoder {
 public:
  // skip: ids that are no text, as QuietIds. All other specials belong to it.
  StreamDecoder(const Tokenizer& tokenizer, std::vector<int32_t> skip)
      : tokenizer_(tokenizer), skip_(std::move(skip)) {}

  // The text that id completes; empty while a character is unfinished.
  std::string Push(int32_t id);
  // The rest: U+FFFD for an unfinished character. The decoder is then as new.
  std::string Finish();

 private:
  const Tokenizer& tokenizer_;
  std::vector<int32_t> skip_;
  std::string pending_;  // 0 to 3 bytes: the beginning of a character
};

}  // namespace quire
