#include "engine/repeat_guard.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <utility>

namespace quire {
namespace {

enum Traits : uint8_t {
  kLetters = 1,
  kLayout = 2,  // a line break or a mark such as <td>
};

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

// ASCII letters and the first bytes of others. 0xC2, 0xE2 and 0xEF begin the signs: U+00A0 to U+00BF, U+2000 to U+2FFF
// (dots, bullets, rules, boxes to tick), full-width forms.
bool BeginsLetter(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (byte > 0xC2 && byte != 0xE2 && byte != 0xEF);
}

uint8_t TraitsOf(std::string_view bytes) {
  const bool mark = bytes.size() > 2 && bytes.front() == '<' && bytes.back() == '>';
  if (mark) return kLayout;
  const bool letters = std::any_of(bytes.begin(), bytes.end(), BeginsLetter);
  const bool breaks = bytes.find('\n') != std::string_view::npos;
  return static_cast<uint8_t>((letters ? kLetters : 0) | (breaks ? kLayout : 0));
}

constexpr uint32_t kMasked = 0x80000000;  // symbols from here on are no token ids
constexpr uint32_t kNumber = kMasked;

// What stands for a token outside of table rows: every run of digits is as good as another.
uint32_t MaskedSymbol(uint32_t symbol, std::string_view bytes) {
  if (std::none_of(bytes.begin(), bytes.end(), IsDigit)) return symbol;
  if (std::all_of(bytes.begin(), bytes.end(), IsDigit)) return kNumber;
  std::string masked;
  for (const char c : bytes)
    if (!IsDigit(c)) {
      masked += c;
    } else if (!masked.ends_with('0')) {
      masked += '0';
    }
  return kMasked | static_cast<uint32_t>(std::hash<std::string>()(masked));
}

// [p]: equal symbols from which the period p may be a loop.
constexpr auto kEnoughEqual = [] {
  std::array<int32_t, kGuardTable.max_block_tokens + 1> enough{};
  for (int p = 1; p <= kGuardTable.max_block_tokens; ++p)
    enough[p] = std::max(kGuardTable.min_repeats * p, kGuardTable.min_run_tokens) - p;
  return enough;
}();

}  // namespace

std::optional<std::string> BlockRepeatDetector::Push(int32_t token, std::string_view bytes) {
  if (bytes == "<tr>") in_row_ = true;
  if (bytes == "</tr>") in_row_ = false;
  uint32_t symbol = static_cast<uint32_t>(token) + 1;
  if (!in_row_) symbol = MaskedSymbol(symbol, bytes);
  if (symbol == kNumber && symbols_[1] == kNumber) return std::nullopt;  // more digits of the same number
  return PushSymbol(symbol, TraitsOf(bytes));
}

std::optional<std::string> BlockRepeatDetector::PushSymbol(uint32_t symbol, uint8_t traits) {
  int32_t enough = 0;
  for (int p = 1; p <= kMaxBlock; ++p) {
    equal_[p] = symbols_[p] == symbol ? equal_[p] + 1 : 0;
    enough |= equal_[p] >= kEnoughEqual[p] ? 1 : 0;
  }
  std::copy_backward(symbols_.begin() + 1, symbols_.end() - 1, symbols_.end());
  std::copy_backward(traits_.begin() + 1, traits_.end() - 1, traits_.end());
  symbols_[1] = symbol;
  traits_[1] = traits;
  if (!enough) return std::nullopt;

  int block = 1;  // the first is the shortest period: the others are its multiples
  while (equal_[block] < kEnoughEqual[block]) ++block;
  const int run = equal_[block] + block;
  if (run < MinRunTokens(block)) return std::nullopt;
  return std::to_string(run / block) + " repeats of a block of " + std::to_string(block) + " tokens";
}

int BlockRepeatDetector::MinRunTokens(int block) const {
  uint8_t traits = 0;
  for (int p = 1; p <= block; ++p) traits |= traits_[p];
  const bool words = traits & kLetters;
  const bool line = !(traits & kLayout);
  return words && (line || block >= kGuardTable.long_block_tokens) ? kGuardTable.min_run_tokens
                                                                   : kGuardTable.min_layout_run_tokens;
}

namespace {

constexpr std::string_view kRefBegin = "<|ref|>", kRefEndDetBegin = "<|/ref|><|det|>", kDetEnd = "<|/det|>";
constexpr size_t kMaxMarkBytes = 4096;  // a mark longer than this is none

// All whole numbers in a list of boxes; none when there is anything else in it.
std::vector<int> ParseCoordinates(std::string_view boxes) {
  std::vector<int> coordinates;
  const char* at = boxes.data();
  const char* const end = at + boxes.size();
  while (at < end) {
    if (IsDigit(*at)) {
      const auto [next, error] = std::from_chars(at, end, coordinates.emplace_back());
      if (error != std::errc()) return {};
      at = next;
    } else if (std::string_view("[], \n").find(*at) != std::string_view::npos) {
      ++at;
    } else {
      return {};
    }
  }
  return coordinates;
}

}  // namespace

std::optional<std::string> RepeatedBoxDetector::Push(std::string_view bytes) {
  std::optional<std::string> end;
  for (const char c : bytes) {
    const bool inside = mark_.starts_with(kRefBegin);
    if (!inside && kRefBegin[mark_.size()] != c) mark_.clear();  // its first character is nowhere else in it
    if (inside || kRefBegin[mark_.size()] == c) mark_ += c;
    if (!inside) continue;
    if (mark_.ends_with(kRefBegin)) {
      mark_ = kRefBegin;
    } else if (mark_.ends_with(kDetEnd)) {
      auto found = PushRegion(ParseRegion(mark_));
      if (!end) end = std::move(found);
      mark_.clear();
    } else if (mark_.size() > kMaxMarkBytes) {
      mark_.clear();
    }
  }
  return end;
}

RepeatedBoxDetector::Region RepeatedBoxDetector::ParseRegion(std::string_view mark) {
  mark.remove_prefix(kRefBegin.size());
  mark.remove_suffix(kDetEnd.size());
  const size_t label_end = mark.find(kRefEndDetBegin);
  if (label_end == std::string_view::npos) return {};
  return {std::string(mark.substr(0, label_end)), ParseCoordinates(mark.substr(label_end + kRefEndDetBegin.size()))};
}

bool RepeatedBoxDetector::Near(const Region& a, const Region& b) {
  return a.label == b.label &&
         std::equal(a.coordinates.begin(), a.coordinates.end(), b.coordinates.begin(), b.coordinates.end(),
                    [](int x, int y) { return std::abs(x - y) <= kGuardTable.box_tolerance; });
}

std::optional<std::string> RepeatedBoxDetector::PushRegion(Region region) {
  in_a_row_ = Near(region, last_) ? in_a_row_ + 1 : 1;
  if (region.coordinates.empty()) in_a_row_ = 0;
  last_ = std::move(region);
  if (in_a_row_ < kGuardTable.min_box_regions) return std::nullopt;
  return std::to_string(in_a_row_) + " regions \"" + last_.label + "\" in the same place";
}

}  // namespace quire
