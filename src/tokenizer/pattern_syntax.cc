#include "tokenizer/pattern_syntax.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <span>

#include "base/error.h"

namespace quire {
namespace {

struct CodeRange {
  uint32_t first, last;
};

#include "tokenizer/unicode_after_14.inc"

// Unicode's White_Space, inside brackets.
constexpr std::string_view kWhiteSpace =
    R"(\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

std::span<const CodeRange> After14(char category) {
  switch (category) {
    case 'L':
      return kAfter14L;
    case 'M':
      return kAfter14M;
    case 'N':
      return kAfter14N;
    case 'P':
      return kAfter14P;
    case 'S':
      return kAfter14S;
    default:
      return {};
  }
}

void AppendCode(uint32_t code, std::string* out) {
  std::array<char, 8> hex;
  const char* end = std::to_chars(hex.data(), hex.data() + hex.size(), code, 16).ptr;
  *out += "\\x{";
  out->append(hex.data(), end - hex.data());
  *out += '}';
}

class Translator {
 public:
  explicit Translator(std::string_view regex) : regex_(regex) {}

  std::string Run() {
    while (at_ < regex_.size()) {
      switch (regex_[at_]) {
        case '\\':
          TranslateEscape(/*in_class=*/false);
          break;
        case '[':
          TranslateClass();
          break;
        case '(':
          TranslateGroup();
          break;
        case '.':
        case '^':
        case '$':
          Refuse(1);  // their meaning at line ends differs between the two
        default:
          Copy(1);
      }
    }
    return out_;
  }

 private:
  [[noreturn]] void Refuse(size_t length) const {
    throw Error(ErrorKind::kBadModel, "the pattern " + std::string(regex_) + " holds \"" +
                                          std::string(regex_.substr(at_, length)) + "\" at byte " +
                                          std::to_string(at_) + ", which is not known here");
  }

  void Copy(size_t length) {
    out_ += regex_.substr(at_, length);
    at_ += length;
  }

  bool Follows(std::string_view text) const { return regex_.substr(at_, text.size()) == text; }

  void TranslateGroup() {
    for (const std::string_view known : {"(?:", "(?!", "(?="})
      if (Follows(known)) return Copy(known.size());
    if (Follows("(?") || Follows("(*")) Refuse(3);
    Copy(1);
  }

  void TranslateClass() {
    Copy(Follows("[^") ? 2 : 1);
    const size_t first = at_;
    while (!Follows("]") || at_ == first) {
      if (at_ == regex_.size()) throw Error(ErrorKind::kBadModel, "the pattern " + std::string(regex_) + " ends in [");
      if (Follows("\\")) {
        TranslateEscape(/*in_class=*/true);
      } else if (Follows("[") || Follows("&&") || Follows("]")) {
        Refuse(2);  // nested classes, intersections, an empty class
      } else {
        Copy(1);
      }
    }
    Copy(1);
  }

  void TranslateEscape(bool in_class) {
    const char c = at_ + 1 < regex_.size() ? regex_[at_ + 1] : '\0';
    if (c == 'p') return TranslateCategory(in_class);
    if (c == 's' || (c == 'S' && !in_class)) {
      AppendSet(in_class, c == 'S' ? "^" : "", kWhiteSpace);
      at_ += 2;
    } else if (c == 'r' || c == 'n' || c == 't' || std::ispunct(static_cast<unsigned char>(c))) {
      Copy(2);
    } else {
      Refuse(2);
    }
  }

  void TranslateCategory(bool in_class) {  // \p{L}
    constexpr size_t kLength = 5;
    const std::string_view name = regex_.substr(at_, kLength);
    const auto added =
        name.size() == kLength && name[2] == '{' && name[4] == '}' ? After14(name[3]) : std::span<const CodeRange>();
    if (added.empty()) Refuse(kLength);
    std::string set(name);
    for (const CodeRange& range : added) {
      AppendCode(range.first, &set);
      set += '-';
      AppendCode(range.last, &set);
    }
    AppendSet(in_class, "", set);
    at_ += kLength;
  }

  void AppendSet(bool in_class, std::string_view negation, std::string_view set) {
    if (!in_class) (out_ += '[') += negation;
    out_ += set;
    if (!in_class) out_ += ']';
  }

  std::string_view regex_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string ToPcre2Pattern(std::string_view regex) {
  return Translator(regex).Run();
}

}  // namespace quire
