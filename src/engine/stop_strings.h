// Ends a text before the first of a few strings, while the text comes in pieces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quire {

// The first is the one that is complete first; of those that are complete with the same byte, the longest. So the
// result does not depend on how the text is cut into pieces. One thread.
class StopStrings {
 public:
  StopStrings() = default;
  // None of them empty. Whole characters each, so that the text ends with a whole one where its pieces do.
  explicit StopStrings(const std::vector<std::string>& strings);

  // The text that can be given out now that a piece has come: all but an end that may be a stop string's beginning.
  // Nothing once a stop string was there.
  std::string Push(std::string_view piece);
  // The text is over: what was held back.
  std::string Finish();

  // The stop string that ended the text; empty: none yet.
  const std::string& found() const { return found_; }

 private:
  // A stop string, and where its search stands (Knuth, Morris and Pratt 1977).
  struct Search {
    std::string string;
    std::vector<size_t> borders;  // [i]: length of the longest proper end of string[0..i] that is its beginning too
    size_t matched = 0;           // the text so far ends with that much of string
    void Advance(char c);
  };

  std::vector<Search> searches_;
  std::string held_;
  std::string found_;
};

}  // namespace quire
