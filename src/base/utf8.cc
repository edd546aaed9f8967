#include "base/utf8.h"

#include <algorithm>

namespace quire {
namespace {

// Length that a lead byte announces, 0 for a byte that cannot lead.
int SequenceLength(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;
  if (lead < 0xE0) return 2;
  if (lead < 0xF0) return 3;
  return lead < 0xF5 ? 4 : 0;
}

// Whether byte may follow lead directly: where overlong forms, surrogates and too large codes show themselves.
bool MaySecond(unsigned char lead, unsigned char byte) {
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  return byte >= low && byte <= high;
}

// Bytes of a valid (perhaps unfinished) sequence at text[at]: its maximal valid prefix, 0 when the lead is bad.
int ValidPrefix(std::string_view text, size_t at, int length) {
  int n = length > 0 ? 1 : 0;
  while (n < length && at + n < text.size()) {
    const auto byte = static_cast<unsigned char>(text[at + n]);
    const bool good = n == 1 ? MaySecond(static_cast<unsigned char>(text[at]), byte) : (byte & 0xC0) == 0x80;
    if (!good) break;
    ++n;
  }
  return n;
}

}  // namespace

Utf8Char DecodeUtf8(std::string_view text, size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const int length = SequenceLength(lead);
  if (length == 1) return {lead, 1, true};
  const int n = ValidPrefix(text, at, length);
  if (length == 0 || n < length) return {0xFFFD, static_cast<size_t>(std::max(n, 1)), false};
  char32_t code = lead & (0x7F >> length);
  for (int i = 1; i < length; ++i) code = code << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3F);
  return {code, static_cast<size_t>(length), true};
}

void AppendUtf8(std::string* text, char32_t code) {
  auto put = [text](char32_t byte) { text->push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

bool IsUtf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text, at);
    if (!c.valid) return false;
    at += c.bytes;
  }
  return true;
}

std::string RepairUtf8(std::string_view text) {
  std::string good;
  good.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text, at);
    if (c.valid) {
      good.append(text, at, c.bytes);
    } else {
      AppendUtf8(&good, c.code);
    }
    at += c.bytes;
  }
  return good;
}

size_t CountUtf8(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

size_t IncompleteUtf8Tail(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const size_t at = text.size() - back;
    const int length = SequenceLength(static_cast<unsigned char>(text[at]));
    if (length == 0) continue;  // a continuation byte (or a bad one): look further back
    return length > static_cast<int>(back) && ValidPrefix(text, at, length) == static_cast<int>(back) ? back : 0;
  }
  return 0;
}

}  // namespace quire
