#include "base/json.h"

#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/utf8.h"

namespace quire {
namespace {

class Reader {
 public:
  Reader(std::string_view text, std::string_view name, int max_depth)
      : text_(text), name_(name), depth_left_(max_depth) {}

  Json ReadDocument() {
    Json value = ReadValue();
    SkipBlanks();
    if (at_ != text_.size()) Fail("wanted the end of the text after the value");
    return value;
  }

 private:
  [[noreturn]] void Fail(const std::string& what) const {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at_ && i < text_.size(); ++i) {
      if (text_[i] == '\n') {
        ++line;
        column = 1;
      } else {
        ++column;
      }
    }
    throw Error(ErrorKind::kBadInput,
                "not valid JSON at line " + std::to_string(line) + ", column " + std::to_string(column) + ": " + what,
                std::string(name_));
  }

  void SkipBlanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t'))
      ++at_;
  }

  bool Take(char c) {
    SkipBlanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void Want(char c, const char* why) {
    if (!Take(c)) Fail(std::string("wanted '") + c + "' " + why);
  }

  Json ReadValue() {
    SkipBlanks();
    if (at_ == text_.size()) Fail("the text ends where a value should be");
    switch (text_[at_]) {
      case '{':
        return ReadObject();
      case '[':
        return ReadArray();
      case '"':
        return ReadString();
      case 't':
        return ReadWord("true", true);
      case 'f':
        return ReadWord("false", false);
      case 'n':
        return ReadWord("null", nullptr);
      default:
        return ReadNumber();
    }
  }

  Json ReadWord(std::string_view word, Json value) {
    if (text_.substr(at_, word.size()) != word) Fail("unknown word");
    at_ += word.size();
    return value;
  }

  void Enter() {
    if (depth_left_-- == 0) Fail("too deeply nested");
    ++at_;
  }

  Json ReadArray() {
    Enter();
    Json::Array items;
    if (!Take(']')) {
      do items.push_back(ReadValue());
      while (Take(','));
      Want(']', "or ',' after an item");
    }
    ++depth_left_;
    return items;
  }

  Json ReadObject() {
    Enter();
    Json::Object members;
    if (!Take('}')) {
      do {
        SkipBlanks();
        if (at_ == text_.size() || text_[at_] != '"') Fail("wanted a key in quotes");
        std::string key = ReadString();
        Want(':', "after a key");
        members.emplace_back(std::move(key), ReadValue());
      } while (Take(','));
      Want('}', "or ',' after a member");
    }
    ++depth_left_;
    return members;
  }

  std::string ReadString() {
    ++at_;
    std::string out;
    for (;;) {
      const size_t run = at_;
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
             static_cast<unsigned char>(text_[at_]) >= 0x20)
        ++at_;
      out.append(text_, run, at_ - run);
      if (at_ == text_.size()) Fail("a string does not end");
      const char c = text_[at_];
      if (c == '"') break;
      if (c != '\\') Fail("a control character in a string");
      ++at_;
      ReadEscape(&out);
    }
    ++at_;
    if (!IsUtf8(out)) Fail("a string is not UTF-8");
    return out;
  }

  void ReadEscape(std::string* out) {
    if (at_ == text_.size()) Fail("a string does not end");
    const char c = text_[at_++];
    switch (c) {
      case '"':
      case '\\':
      case '/':
        out->push_back(c);
        return;
      case 'b':
        out->push_back('\b');
        return;
      case 'f':
        out->push_back('\f');
        return;
      case 'n':
        out->push_back('\n');
        return;
      case 'r':
        out->push_back('\r');
        return;
      case 't':
        out->push_back('\t');
        return;
      case 'u':
        break;
      default:
        Fail("unknown escape");
    }
    char32_t code = ReadHex4();
    if (code >= 0xDC00 && code < 0xE000) Fail("half a surrogate pair");
    if (code >= 0xD800 && code < 0xDC00) {
      if (text_.substr(at_, 2) != "\\u") Fail("half a surrogate pair");
      at_ += 2;
      const char32_t low = ReadHex4();
      if (low < 0xDC00 || low >= 0xE000) Fail("half a surrogate pair");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    AppendUtf8(out, code);
  }

  char32_t ReadHex4() {
    uint32_t code = 0;
    if (text_.size() - at_ < 4) Fail("a string does not end");
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + at_ + 4, code, 16);
    if (error != std::errc() || end != text_.data() + at_ + 4) Fail("wanted four hexadecimal digits");
    at_ += 4;
    return code;
  }

  bool IsDigit() const { return at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; }

  void SkipDigits() {
    if (!IsDigit()) Fail("wanted a value");
    while (IsDigit()) ++at_;
  }

  Json ReadNumber() {
    const size_t start = at_;
    bool whole = true;
    if (text_[at_] == '-') ++at_;
    if (IsDigit() && text_[at_] == '0') {
      ++at_;
      if (IsDigit()) Fail("a number begins with 0");
    } else {
      SkipDigits();
    }
    if (at_ < text_.size() && text_[at_] == '.') {
      whole = false;
      ++at_;
      SkipDigits();
    }
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      whole = false;
      ++at_;
      if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
      SkipDigits();
    }
    const char* first = text_.data() + start;
    const char* last = text_.data() + at_;
    int64_t integer = 0;
    if (whole && std::from_chars(first, last, integer).ec == std::errc()) return integer;
    double real = 0;
    if (std::from_chars(first, last, real).ec != std::errc()) Fail("a number out of range");
    return real;
  }

  std::string_view text_, name_;
  size_t at_ = 0;
  int depth_left_;
};

void WriteString(std::string_view raw, std::string* out) {
  out->push_back('"');
  for (const char c : IsUtf8(raw) ? std::string(raw) : RepairUtf8(raw)) {
    switch (c) {
      case '"':
        *out += "\\\"";
        break;
      case '\\':
        *out += "\\\\";
        break;
      case '\n':
        *out += "\\n";
        break;
      case '\r':
        *out += "\\r";
        break;
      case '\t':
        *out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          const char* hex = "0123456789abcdef";
          *out += "\\u00";
          out->push_back(hex[c >> 4]);
          out->push_back(hex[c & 15]);
        } else {
          out->push_back(c);
        }
    }
  }
  out->push_back('"');
}

void WriteNumber(double value, std::string* out) {
  if (!std::isfinite(value)) {
    *out += "null";
    return;
  }
  char text[32];
  const std::string_view digits(text, std::to_chars(text, text + sizeof text, value).ptr - text);
  *out += digits;
  if (digits.find_first_of(".e") == std::string_view::npos) *out += ".0";  // read back as a number, not an integer
}

void NewLine(int indent, int depth, std::string* out) {
  if (indent < 0) return;
  out->push_back('\n');
  out->append(static_cast<size_t>(indent) * depth, ' ');
}

void Write(const Json& value, int indent, int depth, std::string* out) {
  if (value.is_null()) {
    *out += "null";
  } else if (value.is_bool()) {
    *out += value.as_bool() ? "true" : "false";
  } else if (value.is_int()) {
    *out += std::to_string(value.as_int());
  } else if (value.is_number()) {
    WriteNumber(value.as_double(), out);
  } else if (value.is_string()) {
    WriteString(value.as_string(), out);
  } else if (value.is_array()) {
    out->push_back('[');
    bool first = true, flat = true;
    for (const Json& item : value.as_array()) flat &= !item.is_array() && !item.is_object();
    for (const Json& item : value.as_array()) {
      if (!first) *out += flat && indent >= 0 ? ", " : ",";
      if (!flat) NewLine(indent, depth + 1, out);
      Write(item, indent, depth + 1, out);
      first = false;
    }
    if (!first && !flat) NewLine(indent, depth, out);
    out->push_back(']');
  } else {
    out->push_back('{');
    bool first = true;
    for (const auto& [key, member] : value.as_object()) {
      if (!first) out->push_back(',');
      NewLine(indent, depth + 1, out);
      WriteString(key, out);
      *out += indent < 0 ? ":" : ": ";
      Write(member, indent, depth + 1, out);
      first = false;
    }
    if (!first) NewLine(indent, depth, out);
    out->push_back('}');
  }
}

[[noreturn]] void WrongType(const char* wanted, const Json& found) {
  throw Error(ErrorKind::kBadInput, std::string("wanted ") + wanted + ", found " + found.type_name());
}

}  // namespace

Json Json::Parse(std::string_view text, std::string_view name, int max_depth) {
  return Reader(text, name, max_depth).ReadDocument();
}

const char* Json::type_name() const {
  constexpr const char* kNames[] = {"null", "a boolean", "an integer", "a number", "a string", "an array", "an object"};
  return kNames[value_.index()];
}

bool Json::as_bool() const {
  if (const bool* v = std::get_if<bool>(&value_)) return *v;
  WrongType("a boolean", *this);
}

int64_t Json::as_int() const {
  if (const int64_t* v = std::get_if<int64_t>(&value_)) return *v;
  if (const double* v = std::get_if<double>(&value_); v && std::trunc(*v) == *v && std::fabs(*v) < 9e15)
    return static_cast<int64_t>(*v);
  WrongType("an integer", *this);
}

double Json::as_double() const {
  if (const double* v = std::get_if<double>(&value_)) return *v;
  if (const int64_t* v = std::get_if<int64_t>(&value_)) return static_cast<double>(*v);
  WrongType("a number", *this);
}

const std::string& Json::as_string() const {
  if (const auto* v = std::get_if<std::string>(&value_)) return *v;
  WrongType("a string", *this);
}

const Json::Array& Json::as_array() const {
  if (const auto* v = std::get_if<Array>(&value_)) return *v;
  WrongType("an array", *this);
}

const Json::Object& Json::as_object() const {
  if (const auto* v = std::get_if<Object>(&value_)) return *v;
  WrongType("an object", *this);
}

const Json* Json::Find(std::string_view key) const {
  const auto* members = std::get_if<Object>(&value_);
  if (!members) return nullptr;
  for (const Member& member : *members)
    if (member.first == key) return &member.second;
  return nullptr;
}

const Json& Json::At(std::string_view key) const {
  as_object();
  if (const Json* member = Find(key)) return *member;
  throw Error(ErrorKind::kBadInput, "wanted the key \"" + std::string(key) + "\", found none");
}

void Json::Add(Json value) {
  if (is_null()) value_ = Array();
  as_array();
  std::get<Array>(value_).push_back(std::move(value));
}

Json& Json::Set(std::string_view key, Json value) {
  if (is_null()) value_ = Object();
  as_object();
  auto& members = std::get<Object>(value_);
  for (Member& member : members)
    if (member.first == key) return member.second = std::move(value);
  return members.emplace_back(std::string(key), std::move(value)).second;
}

std::string Json::Dump(int indent) const {
  std::string out;
  Write(*this, indent, 0, &out);
  return out;
}

}  // namespace quire
