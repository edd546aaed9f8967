// Detectors of a model that repeats itself: what the guard of n-grams, which looks at a window, cannot see. A page that
// one of them ends keeps its text. Their numbers are in guard_table.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/guard_table.h"

namespace quire {

// Ends a page whose last tokens are repeats of one block. Numbers count as equal whatever their digits, and as one
// token however many digits they have, so that a counting loop is one; but inside table rows (from the token <tr> to
// </tr>) tokens must be the same. One detector a sequence, one thread at a time; about a microsecond a token.
class BlockRepeatDetector {
 public:
  // The next generated token and its bytes. A text for people when the page is to end with it ("4 repeats of a block of
  // 120 tokens"); a function of the tokens pushed so far.
  std::optional<std::string> Push(int32_t token, std::string_view bytes);

 private:
  static constexpr int kMaxBlock = kGuardTable.max_block_tokens;

  std::optional<std::string> PushSymbol(uint32_t symbol, uint8_t traits);
  int MinRunTokens(int block) const;

  // Newest first: what stands for a token (0: none yet), and what it is (kLetters, kLayout).
  std::array<uint32_t, kMaxBlock + 1> symbols_{};
  std::array<uint8_t, kMaxBlock + 1> traits_{};
  // [p]: how many symbols up to the newest are equal to the one p before them. So the last equal_[p] + p symbols have
  // the period p.
  std::array<int32_t, kMaxBlock + 1> equal_{};
  bool in_row_ = false;
};

// Ends a page that marks the same place again and again: regions `<|ref|>LABEL<|/ref|><|det|>[[x1, y1, x2,
// y2]]<|/det|>` of one label whose boxes hardly move. What stands between the regions does not matter. One detector a
// sequence, one thread at a time.
class RepeatedBoxDetector {
 public:
  // The next bytes of the text, cut anywhere. A text for people when the page is to end with them.
  std::optional<std::string> Push(std::string_view bytes);

 private:
  struct Region {
    std::string label;
    std::vector<int> coordinates;  // of all its boxes; none: not understood
  };
  static Region ParseRegion(std::string_view mark);
  static bool Near(const Region& a, const Region& b);
  std::optional<std::string> PushRegion(Region region);

  std::string mark_;  // from "<|ref|>" on, or the last bytes before one
  Region last_;
  int in_a_row_ = 0;
};

}  // namespace quire
