// The grounding markup that the models write (docs/formats.md, "Raw text"):
//
//   <|ref|>LABEL<|/ref|><|det|>[[x1, y1, x2, y2], ...]<|/det|>
//   CONTENT
//
// A mark begins a region; its content reaches to the next mark. Text before the first mark, or without any, is a region
// of its own. The parser takes text as it is generated, never throws, is linear in its length, and loses nothing: what
// is no whole mark is content.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "document/literal_scanner.h"

namespace quire {

// In thousandths of the picture's width and height, 0 to 999; x1 <= x2, y1 <= y2.
struct Box {
  int x1 = 0, y1 = 0, x2 = 0, y2 = 0;
  bool operator==(const Box&) const = default;
};

// Natural logarithms of the probabilities of some tokens.
struct LogProbs {
  int tokens = 0;
  double sum = 0;
  double min = 0;  // 0 without tokens

  void Add(double logprob);
  double mean() const { return tokens > 0 ? sum / tokens : 0; }
};

struct Region {
  bool marked = false;        // began with a mark
  std::string label;          // as written
  std::string boxes_text;     // as written: what stood between <|det|> and <|/det|>
  std::vector<Box> boxes;     // none when boxes_text is not understood (then there is a warning)
  std::string content;        // without white space at its ends
  size_t begin = 0, end = 0;  // bytes of the raw text, mark included; the regions of a text cover it without gaps
  LogProbs logprobs;          // of the content's tokens that are not blank; without content, of the mark's tokens
  std::vector<std::string> warnings;
};

// Receives what the parser finds: Open, any number of Contents, Close, for region after region.
class RegionSink {
 public:
  virtual ~RegionSink() = default;
  virtual void Open(const Region& /*head*/) {}        // mark read, content still to come
  virtual void Content(std::string_view /*more*/) {}  // begins without white space, may end with some
  virtual void Close(Region region) = 0;
};

class GroundingParser {
 public:
  // A mark longer than this is none; so a lone <|ref|> holds up no more of a stream.
  static constexpr size_t kMaxMarkBytes = 16 * 1024;

  explicit GroundingParser(RegionSink* sink);  // must outlive the parser

  void Push(std::string_view text);
  // One token's text, possibly none yet (a part of a character), and its log-probability.
  void Push(std::string_view text, double logprob);
  // The text ends; no Push may follow.
  void Finish();

 private:
  enum class State { kContent, kLabel, kBetween, kBoxes };
  struct Token {
    size_t last_byte;  // decides to which part of the text it belongs; without bytes the next one's
    double logprob;
    bool blank;
  };

  void OnText(std::string_view text);
  void OnMark(size_t mark);
  void AddContent(std::string_view text);
  void CompleteMark();
  void AbandonMark();
  void OpenRegion(Region region);
  void CloseRegion();
  LogProbs TakeTokens(size_t end_byte);

  RegionSink* sink_;
  LiteralScanner scanner_;
  State state_ = State::kContent;
  std::string mark_text_, label_, boxes_text_;  // of the mark being read
  bool open_ = false;
  bool any_region_ = false;
  Region region_;
  int marks_as_text_ = 0;  // in the open region
  size_t received_bytes_ = 0;
  size_t decided_bytes_ = 0;  // known to be content or part of a whole mark
  std::deque<Token> tokens_;  // of bytes not yet decided
  LogProbs mark_logprobs_;    // of the open region
};

// All regions of a whole text.
std::vector<Region> ParseGrounding(std::string_view text);

}  // namespace quire
