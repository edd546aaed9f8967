#include "document/grounding.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "base/ascii.h"

namespace quire {
namespace {

enum Mark : size_t { kRef, kRefEnd, kDet, kDetEnd };
constexpr std::array<std::string_view, 4> kMarks = {"<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>"};
constexpr int kMaxCoordinate = 999;

// Reads "[[x1, y1, x2, y2], ...]" with white space anywhere between; at least one box, numbers of any size.
class BoxListReader {
 public:
  explicit BoxListReader(std::string_view text) : text_(text) {}

  std::optional<std::vector<std::array<int, 4>>> Read() {
    std::vector<std::array<int, 4>> boxes;
    if (!Take('[')) return {};
    do {
      std::array<int, 4> box{};
      if (!Take('[')) return {};
      for (size_t i = 0; i < box.size(); ++i)
        if ((i > 0 && !Take(',')) || !TakeNumber(&box[i])) return {};
      if (!Take(']')) return {};
      boxes.push_back(box);
    } while (Take(','));
    if (!Take(']') || !IsBlank(text_)) return {};
    return boxes;
  }

 private:
  bool Take(char c) {
    text_.remove_prefix(std::min(text_.find_first_not_of(kBlanks), text_.size()));
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }

  bool TakeNumber(int* number) {
    const bool negative = Take('-');
    if (!negative) text_.remove_prefix(std::min(text_.find_first_not_of(kBlanks), text_.size()));
    const size_t digits = std::min(text_.find_first_not_of("0123456789"), text_.size());
    if (digits == 0) return false;
    int value = 0;
    for (char digit : text_.substr(0, digits)) value = std::min(value * 10 + (digit - '0'), kMaxCoordinate + 1);
    *number = negative ? -value : value;
    text_.remove_prefix(digits);
    return true;
  }

  std::string_view text_;
};

std::string Counted(int count, std::string_view one, std::string_view many) {
  return std::to_string(count) + ' ' + std::string(count == 1 ? one : many);
}

void ReadBoxes(Region* region) {
  const auto boxes = BoxListReader(region->boxes_text).Read();
  if (!boxes) {
    region->warnings.push_back("box list not understood: " + region->boxes_text.substr(0, 60));
    return;
  }
  int clamped = 0, swapped = 0;
  for (const auto& given : *boxes) {
    std::array<int, 4> in_range{};
    std::ranges::transform(given, in_range.begin(), [](int value) { return std::clamp(value, 0, kMaxCoordinate); });
    Box box{in_range[0], in_range[1], in_range[2], in_range[3]};
    clamped += in_range != given;
    swapped += box.x1 > box.x2 || box.y1 > box.y2;
    if (box.x1 > box.x2) std::swap(box.x1, box.x2);
    if (box.y1 > box.y2) std::swap(box.y1, box.y2);
    region->boxes.push_back(box);
  }
  if (clamped > 0) region->warnings.push_back(Counted(clamped, "box", "boxes") + " outside 0 to 999, clamped");
  if (swapped > 0) region->warnings.push_back(Counted(swapped, "box", "boxes") + " with corners swapped, put in order");
}

}  // namespace

void LogProbs::Add(double logprob) {
  if (std::isnan(logprob)) return;
  min = tokens == 0 ? logprob : std::min(min, logprob);
  sum += logprob;
  ++tokens;
}

GroundingParser::GroundingParser(RegionSink* sink) : sink_(sink), scanner_(kMarks) {}

void GroundingParser::Push(std::string_view text) {
  received_bytes_ += text.size();
  scanner_.Push(
      text, [this](std::string_view plain) { OnText(plain); }, [this](size_t mark) { OnMark(mark); });
}

void GroundingParser::Push(std::string_view text, double logprob) {
  const size_t last_byte = received_bytes_ + std::max<size_t>(text.size(), 1) - 1;
  tokens_.push_back({last_byte, logprob, !text.empty() && IsBlank(text)});
  Push(text);
}

void GroundingParser::Finish() {
  scanner_.Flush([this](std::string_view plain) { OnText(plain); });
  if (state_ != State::kContent) AbandonMark();
  if (open_) CloseRegion();
}

void GroundingParser::OnText(std::string_view text) {
  const bool fits = mark_text_.size() + text.size() <= kMaxMarkBytes;
  if (state_ != State::kContent && (!fits || (state_ == State::kBetween && !IsBlank(text)))) AbandonMark();
  if (state_ == State::kContent) return AddContent(text);
  mark_text_ += text;
  if (state_ == State::kLabel) label_ += text;
  if (state_ == State::kBoxes) boxes_text_ += text;
}

void GroundingParser::OnMark(size_t mark) {
  // The one mark that may follow in each state, and the state it leads to.
  constexpr std::array kExpected = {kRef, kRefEnd, kDet, kDetEnd};
  constexpr std::array kNext = {State::kLabel, State::kBetween, State::kBoxes, State::kContent};
  if (state_ != State::kContent && mark != kExpected[static_cast<size_t>(state_)]) AbandonMark();
  const size_t state = static_cast<size_t>(state_);
  if (mark != kExpected[state]) {
    AddContent(kMarks[mark]);
    ++marks_as_text_;
    return;
  }
  mark_text_ += kMarks[mark];
  state_ = kNext[state];
  if (mark == kDetEnd) CompleteMark();
}

void GroundingParser::AddContent(std::string_view text) {
  decided_bytes_ += text.size();
  if (region_.content.empty()) text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  if (text.empty()) return;
  if (!open_) OpenRegion({});
  region_.content += text;
  sink_->Content(text);
}

void GroundingParser::AbandonMark() {
  state_ = State::kContent;
  label_.clear();
  boxes_text_.clear();
  AddContent(std::exchange(mark_text_, {}));
  ++marks_as_text_;
}

void GroundingParser::CompleteMark() {
  if (open_) CloseRegion();
  Region region;
  region.marked = true;
  region.label = std::exchange(label_, {});
  region.boxes_text = std::exchange(boxes_text_, {});
  region.begin = decided_bytes_;
  ReadBoxes(&region);
  decided_bytes_ += std::exchange(mark_text_, {}).size();
  OpenRegion(std::move(region));
}

void GroundingParser::OpenRegion(Region region) {
  region_ = std::move(region);
  if (!std::exchange(any_region_, true)) region_.begin = 0;
  open_ = true;
  if (region_.marked) mark_logprobs_ = TakeTokens(decided_bytes_);
  sink_->Open(region_);
}

void GroundingParser::CloseRegion() {
  const LogProbs content_logprobs = TakeTokens(decided_bytes_);
  region_.logprobs = content_logprobs.tokens > 0 ? content_logprobs : std::exchange(mark_logprobs_, {});
  region_.end = decided_bytes_;
  region_.content = std::string(Trim(region_.content));
  const int left = std::exchange(marks_as_text_, 0);
  if (left > 0) region_.warnings.push_back(Counted(left, "mark is", "marks are") + " not complete, kept as text");
  open_ = false;
  sink_->Close(std::exchange(region_, {}));
}

LogProbs GroundingParser::TakeTokens(size_t end_byte) {
  LogProbs taken;
  for (; !tokens_.empty() && tokens_.front().last_byte < end_byte; tokens_.pop_front())
    if (!tokens_.front().blank) taken.Add(tokens_.front().logprob);
  return taken;
}

std::vector<Region> ParseGrounding(std::string_view text) {
  struct Collector : RegionSink {
    void Close(Region region) override { regions.push_back(std::move(region)); }
    std::vector<Region> regions;
  } collector;
  GroundingParser parser(&collector);
  parser.Push(text);
  parser.Finish();
  return std::move(collector.regions);
}

}  // namespace quire
