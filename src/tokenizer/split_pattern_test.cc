#include "tokenizer/split_pattern.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace quire {
namespace {

using Pieces = std::vector<std::string_view>;

Pieces Split(const char* regex, std::string_view text) {
  Pieces pieces;
  SplitPattern(regex).Split(text, &pieces);
  return pieces;
}

class SplitPatternTest : public ::testing::Test {
  void SetUp() override {
    if (!SplitPattern::BuiltIn()) GTEST_SKIP() << "built without PCRE2";
  }
};

TEST_F(SplitPatternTest, MatchesAndGapsArePieces) {
  EXPECT_EQ(Split("\\p{N}{1,3}", "a1234b"), (Pieces{"a", "123", "4", "b"}));
  EXPECT_EQ(Split("x", ""), Pieces{});
  EXPECT_EQ(Split("x", "abc"), Pieces{"abc"});
  EXPECT_EQ(Split("x*", "axxb"), (Pieces{"a", "xx", "b"}));  // an empty match is no cut
}

TEST_F(SplitPatternTest, WhiteSpaceIsUnicodes) {
  EXPECT_EQ(Split("\\s+", "a\u00A0\u3000b"), (Pieces{"a", "\u00A0\u3000", "b"}));
  EXPECT_EQ(Split("\\s+", "a\u180Eb\u200Bc"), (Pieces{"a\u180Eb\u200Bc"}));
}

TEST_F(SplitPatternTest, KnowsLettersOfUnicode16) {
  EXPECT_EQ(Split("\\p{L}+", "-\U000105C0\U0002EBF0-"), (Pieces{"-", "\U000105C0\U0002EBF0", "-"}));
}

TEST_F(SplitPatternTest, MalformedPatternsAreErrors) {
  for (const char* regex : {"(a", "a)", "[z-a]", "*", "a{2,1}"}) EXPECT_THROW(SplitPattern{regex}, Error) << regex;
}

TEST_F(SplitPatternTest, EndlessBacktrackingIsAnError) {
  Pieces pieces;
  EXPECT_THROW(SplitPattern("(?:a+)+[bc]").Split(std::string(60, 'a'), &pieces), Error);
}
}  // namespace
}  // namespace quire
