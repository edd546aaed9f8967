#include "document/cer.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "base/ascii.h"
#include "base/utf8.h"

namespace quire {
namespace {

std::u32string Characters(std::string_view text) {
  std::u32string characters;
  bool blank = false;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text, at);
    at += c.bytes;
    if (c.code < 128 && kBlanks.find(static_cast<char>(c.code)) != kBlanks.npos) {
      blank = true;
      continue;
    }
    if (blank && !characters.empty()) characters += U' ';
    characters += c.code;
    blank = false;
  }
  return characters;
}

size_t Distance(std::u32string_view a, std::u32string_view b) {
  const size_t begin = static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  a.remove_prefix(begin);
  b.remove_prefix(begin);
  while (!a.empty() && !b.empty() && a.back() == b.back()) a.remove_suffix(1), b.remove_suffix(1);

  std::vector<size_t> row(b.size() + 1);  // distances of a's first i characters to b's first j
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t best = std::min({row[j + 1] + 1, row[j] + 1, diagonal + (a[i] != b[j])});
      diagonal = row[j + 1];
      row[j + 1] = best;
    }
  }
  return row.back();
}

}  // namespace

CharacterErrors CountCharacterErrors(std::string_view truth, std::string_view read) {
  const std::u32string wanted = Characters(truth);
  return {Distance(wanted, Characters(read)), wanted.size()};
}

}  // namespace quire
