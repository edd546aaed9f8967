#include "apps/bench/flags.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>
#include <utility>

#include "base/error.h"

namespace quire {

Flags::Flags(int argc, char** argv, std::string usage) : usage_(std::move(usage)) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (!argument.starts_with("--")) {
      others_.push_back(argument);
    } else if (++i == argc) {
      Refuse("wanted a value behind " + argument);
    } else {
      flags_.push_back({argument.substr(2), argv[i]});
    }
  }
}

void Flags::Refuse(const std::string& what) const {
  throw Error(ErrorKind::kUsage, what, "", usage_);
}

const std::string* Flags::Take(std::string_view name, std::string* value) {
  const auto flag = std::ranges::find(flags_, name, &Flag::name);
  if (flag == flags_.end()) return nullptr;
  *value = std::move(flag->value);
  flags_.erase(flag);
  return value;
}

uint64_t Flags::Parse(std::string_view name, const std::string& text, uint64_t least) const {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least)
    Refuse("wanted --" + std::string(name) + " of at least " + std::to_string(least) + ", found " + text);
  return number;
}

std::string Flags::Text(std::string_view name, std::string fallback) {
  std::string value;
  return Take(name, &value) ? value : fallback;
}

std::string Flags::Required(std::string_view name) {
  std::string value;
  if (!Take(name, &value)) Refuse("wanted --" + std::string(name));
  return value;
}

uint64_t Flags::Number(std::string_view name, uint64_t fallback, uint64_t least) {
  std::string value;
  return Take(name, &value) ? Parse(name, value, least) : fallback;
}

int Flags::Count(std::string_view name, int fallback) {
  return Counts(name, {fallback}).front();
}

double Flags::Real(std::string_view name, double fallback) {
  std::string value;
  if (!Take(name, &value)) return fallback;
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || !(number > 0))
    Refuse("wanted --" + std::string(name) + " above 0, found " + value);
  return number;
}

std::vector<int> Flags::Counts(std::string_view name, std::vector<int> fallback) {
  std::string value;
  if (!Take(name, &value)) return fallback;
  std::vector<int> counts;
  for (const std::string& part : SplitAtCommas(value)) {
    const uint64_t count = Parse(name, part, 1);
    if (count > std::numeric_limits<int>::max()) Refuse("--" + std::string(name) + ": too large");
    counts.push_back(static_cast<int>(count));
  }
  return counts;
}

size_t Flags::Choice(std::string_view name, std::initializer_list<std::string_view> words) {
  std::string value;
  if (!Take(name, &value)) return 0;
  const auto word = std::ranges::find(words, value);
  if (word != words.end()) return static_cast<size_t>(word - words.begin());
  std::string all;
  for (const std::string_view known : words) all += (all.empty() ? "" : " or ") + std::string(known);
  Refuse("wanted --" + std::string(name) + " " + all + ", found " + value);
}

std::string Flags::Folder(std::string_view what) {
  if (others_.size() != 1) Refuse("wanted " + std::string(what));
  const std::string folder = others_[0];
  others_.clear();
  return folder;
}

void Flags::Finish() const {
  if (!flags_.empty()) Refuse("unknown flag --" + flags_[0].name);
  if (!others_.empty()) Refuse("unknown argument " + others_[0]);
}

std::vector<std::string> SplitAtCommas(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

int RunProgram(const char* name, const std::function<int()>& body) {
  try {
    return body();
  } catch (const std::exception&) {
    const Error error = CurrentError();
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return Info(error.kind()).exit_code;
  }
}

}  // namespace quire
