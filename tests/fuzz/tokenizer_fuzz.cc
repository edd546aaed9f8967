// Any bytes as a tokenizer.json: a tokenizer that gives text back unchanged, or an Error{kBadModel}. With a newline in
// them, what follows the last one is the text.
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t cut = std::min(bytes.rfind('\n'), bytes.size());
  const std::string_view text = bytes.substr(std::min(cut + 1, bytes.size()));
  try {
    const auto tokenizer = quire::Tokenizer::Parse(bytes.substr(0, cut), "fuzz");
    const std::vector<int32_t> ids = tokenizer.Encode(text);
    quire::StreamDecoder decoder(tokenizer, {});
    std::string decoded;
    for (const int32_t id : ids) decoded += decoder.Push(id);
    decoded += decoder.Finish();
    QUIRE_CHECK_EQ(decoded, quire::RepairUtf8(text));
    QUIRE_CHECK_EQ(decoded, tokenizer.Decode(ids));
  } catch (const quire::Error& error) {
    if (error.kind() != quire::ErrorKind::kBadModel) __builtin_trap();
  }
  return 0;
}
