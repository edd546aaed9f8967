#include "engine/stop_strings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace quire {
namespace {

using Strings = std::vector<std::string>;

// The text that comes out, and the string that ended it.
using Cut = std::pair<std::string, std::string>;

Cut CutPieces(const Strings& strings, const Strings& pieces) {
  StopStrings stops(strings);
  std::string text;
  for (const std::string& piece : pieces) text += stops.Push(piece);
  text += stops.Finish();
  return {text, stops.found()};
}
// Of a text in pieces of one byte, which must not differ from the text at once.
Cut CutText(const Strings& strings, const std::string& text) {
  Strings bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  const Cut cut = CutPieces(strings, bytes);
  EXPECT_EQ(CutPieces(strings, {text}), cut);
  return cut;
}

TEST(StopStringsTest, WithoutAnyTheTextPasses) {
  StopStrings stops;
  EXPECT_EQ(stops.Push("a"), "a");
  EXPECT_EQ(stops.Push(""), "");
  EXPECT_EQ(stops.Finish(), "");
}

TEST(StopStringsTest, TheTextEndsBeforeIt) {
  EXPECT_EQ(CutText({"END"}, "one END two"), Cut("one ", "END"));
  EXPECT_EQ(CutText({"END"}, "END"), Cut("", "END"));
  EXPECT_EQ(CutText({"END"}, "EN"), Cut("EN", ""));
  EXPECT_EQ(CutText({"\n\n"}, "a\nb\n\nc"), Cut("a\nb", "\n\n"));
}

TEST(StopStringsTest, HoldsBackOnlyWhatMayBeginOne) {
  StopStrings stops({"END"});
  EXPECT_EQ(stops.Push("oneE"), "one");
  EXPECT_EQ(stops.Push("N"), "");
  EXPECT_EQ(stops.Push(""), "");
  EXPECT_EQ(stops.Push("E"), "EN");
  EXPECT_EQ(stops.Push("ven"), "Even");
  EXPECT_EQ(stops.Push("E"), "");
  EXPECT_EQ(stops.Finish(), "E");
}

TEST(StopStringsTest, NothingComesBehindIt) {
  StopStrings stops({"END"});
  EXPECT_EQ(stops.Push("aENDb"), "a");
  EXPECT_EQ(stops.found(), "END");
  EXPECT_EQ(stops.Push("c"), "");
  EXPECT_EQ(stops.Finish(), "");
}

TEST(StopStringsTest, OverlapsItself) {
  EXPECT_EQ(CutText({"aab"}, "aaab"), Cut("a", "aab"));
  EXPECT_EQ(CutText({"abab!"}, "ababab!"), Cut("ab", "abab!"));
  EXPECT_EQ(CutText({"abcabd"}, "abcabcabd"), Cut("abc", "abcabd"));
}

TEST(StopStringsTest, SeveralOverlap) {
  EXPECT_EQ(CutText({"abcd", "bc"}, "abcd"), Cut("a", "bc"));      // complete first
  EXPECT_EQ(CutText({"bcd", "abcd"}, "xabcd"), Cut("x", "abcd"));  // with the same byte: the longest
  EXPECT_EQ(CutText({"abcd", "cx"}, "abcx"), Cut("ab", "cx"));     // where the longer one came to nothing
}

TEST(StopStringsTest, OneBeginsAnother) {
  EXPECT_EQ(CutText({"abc", "ab"}, "xabc"), Cut("x", "ab"));
  EXPECT_EQ(CutText({"ab", "abc"}, "xabc"), Cut("x", "ab"));
}

TEST(StopStringsTest, CharactersOfSeveralBytes) {
  EXPECT_EQ(CutText({"語"}, "日本語。"), Cut("日本", "語"));
  EXPECT_EQ(CutText({"è"}, "ééè"), Cut("éé", "è"));  // é and è begin with the same byte
  EXPECT_EQ(CutText({"é!"}, "é?é!"), Cut("é?", "é!"));
  StopStrings stops({"è"});
  EXPECT_EQ(stops.Push("é"), "é");  // whole characters are not held
}

TEST(StopStringsTest, AsPlainSearchFindsIt) {
  std::mt19937 random(5);
  auto draw = [&](size_t length) {
    std::string text;
    while (text.size() < length) text += "ab"[random() % 2];
    return text;
  };
  int found = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    Strings strings;
    for (size_t i = 0; i < 1 + random() % 4; ++i) strings.push_back(draw(1 + random() % 6));
    const std::string text = draw(random() % 20);
    Cut wanted{text, ""};
    for (size_t end = 1; end <= text.size() && wanted.second.empty(); ++end)
      for (const std::string& s : strings)
        if (std::string_view(text).substr(0, end).ends_with(s) && s.size() > wanted.second.size())
          wanted = {text.substr(0, end - s.size()), s};
    ASSERT_EQ(CutText(strings, text), wanted) << text;
    found += !wanted.second.empty();
  }
  EXPECT_GT(found, 500);
}

}  // namespace
}  // namespace quire
