#include "tokenizer/pattern_syntax.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace quire {
namespace {

TEST(PatternSyntaxTest, KeepsWhatMeansTheSame) {
  for (const char* regex : {"a|b", "[^\\r\\n]?", "(?:ab){1,3}", "a(?!b)", "[一-龥]+", "\\[\\\\\\]", "[\\-\\]^_`{|}~]"})
    EXPECT_EQ(ToPcre2Pattern(regex), regex);
}

TEST(PatternSyntaxTest, SpellsOutClasses) {
  EXPECT_EQ(ToPcre2Pattern("\\s").rfind("[\\t-\\r \\x{85}", 0), 0u);
  EXPECT_EQ(ToPcre2Pattern("\\S").rfind("[^\\t-\\r ", 0), 0u);
  EXPECT_EQ(ToPcre2Pattern("[\\s]"), ToPcre2Pattern("\\s"));
  EXPECT_EQ(ToPcre2Pattern("\\p{P}").rfind("[\\p{P}\\x{1b4e}-\\x{1b4f}", 0), 0u);
  EXPECT_EQ(ToPcre2Pattern("[a\\p{P}]").rfind("[a\\p{P}\\x{1b4e}-", 0), 0u);
}

TEST(PatternSyntaxTest, RefusesTheRest) {
  for (const char* regex :
       {"\\d", "\\w", "\\b",     "[\\S]",   ".",    "^a",     "a$",  "(?i:a)", "(?<=a)", "[[a]]", "[a&&b]",
        "[]",  "[^]", "\\p{Lu}", "\\p{^L}", "\\pL", "\\P{L}", "\\p", "\\",     "[a",     "[a\\"}) {
    SCOPED_TRACE(regex);
    EXPECT_THROW(ToPcre2Pattern(regex), Error);
  }
}

}  // namespace
}  // namespace quire
