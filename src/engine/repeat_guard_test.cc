// The test set of the repeat detectors: 30 loops as models fall into them, and 30 pages as people scan them.
#include "engine/repeat_guard.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "tokenizer/split_pattern.h"
#include "tokenizer/tokenizer.h"

namespace quire {
namespace {

const Tokenizer& Tiny() {
  static const Tokenizer tokenizer = Tokenizer::Load(std::string(QUIRE_SOURCE_DIR) + "/models/tiny/tokenizer.json");
  return tokenizer;
}

constexpr int kContextTokens = 8192;

struct Verdict {
  int tokens = 0;  // read until the page was ended, or all of them
  std::optional<std::string> loop;
};

// What the detectors say of a page whose tokens are those of text, at most a context of them.
Verdict Judge(const std::string& text) {
  BlockRepeatDetector blocks;
  RepeatedBoxDetector boxes;
  Verdict verdict;
  for (const int32_t id : Tiny().Encode(text)) {
    if (verdict.tokens++ == kContextTokens) break;
    verdict.loop = blocks.Push(id, Tiny().Bytes(id));
    if (!verdict.loop) verdict.loop = boxes.Push(Tiny().Bytes(id));
    if (verdict.loop) break;
  }
  return verdict;
}

// Writes text from a seed: the same on every machine.
class Writer {
 public:
  explicit Writer(uint32_t seed) : random_(seed) {}

  int Number(int low, int high) { return low + static_cast<int>(random_() % static_cast<uint32_t>(high - low + 1)); }

  std::string Word() {
    static constexpr const char* kWords[] = {
        "river",  "stone",  "paper",  "north",  "window", "letter", "winter",  "engine", "market",
        "silver", "garden", "bridge", "copper", "field",  "tower",  "council", "report", "number",
        "street", "doctor", "animal", "cotton", "summer", "planet", "museum",  "yellow", "signal",
        "theory", "harbor", "ladder", "pencil", "mirror", "valley", "record",  "pepper", "carpet"};
    return kWords[random_() % std::size(kWords)];
  }
  std::string Words(int count) {
    std::string words = Word();
    while (--count > 0) words += " " + Word();
    return words;
  }
  std::string Name() {
    std::string name = Word();
    name[0] = static_cast<char>(name[0] - 'a' + 'A');
    return name;
  }
  std::string Sentence() { return Name() + " " + Words(Number(4, 12)) + "."; }
  std::string Paragraph(int sentences) {
    std::string text = Sentence();
    while (--sentences > 0) text += " " + Sentence();
    return text + "\n\n";
  }
  std::string Price() { return std::to_string(Number(1, 99)) + "." + std::to_string(Number(10, 99)); }

 private:
  std::mt19937 random_;
};

using Part = std::function<std::string(int index)>;

std::string Join(int count, const Part& part) {
  std::string text;
  for (int i = 0; i < count; ++i) text += part(i);
  return text;
}

std::string Times(int count, const std::string& part) {
  return Join(count, [&](int) { return part; });
}

// More than fills the context: a token of the tiny model stands for two or three characters.
std::string Forever(const Part& part) {
  std::string text;
  for (int i = 0; text.size() < 6 * kContextTokens; ++i) text += part(i);
  return text;
}

std::string Forever(const std::string& part) {
  return Forever([&](int) { return part; });
}

std::string Row(std::initializer_list<std::string> cells) {
  std::string row = "<tr>";
  for (const std::string& cell : cells) row += "<td>" + cell + "</td>";
  return row + "</tr>";
}

std::string Mark(const std::string& label, int x1, int y1, int x2, int y2) {
  return "<|ref|>" + label + "<|/ref|><|det|>[[" + std::to_string(x1) + ", " + std::to_string(y1) + ", " +
         std::to_string(x2) + ", " + std::to_string(y2) + "]]<|/det|>\n";
}

std::string N(int number) {
  return std::to_string(number);
}

struct Page {
  const char* what;
  std::string text;
};

// Each begins like a page and then repeats itself to the end of the context.
std::vector<Page> Loops() {
  Writer w(1);
  const std::string page = w.Paragraph(6);
  const std::string sentence = w.Sentence(), paragraph = w.Paragraph(6), table = "<table>" + Row({"Name", "Value"});
  std::vector<Page> loops = {
      {"one word", page + Forever(" the")},
      {"two words", page + Forever(" and then")},
      {"a sentence within a line", page + Forever(sentence + " ")},
      {"a sentence on a line of its own", page + Forever(sentence + "\n")},
      {"a clause, comma after comma", page + "He said" + Forever(", and the " + w.Words(9))},
      {"a paragraph", page + Forever(paragraph)},
      {"a paragraph that counts", page + Forever([&](int i) { return "Section " + N(i) + " " + paragraph; })},
      {"a numbered list of one item", page + Forever([&](int i) { return N(i + 1) + ". " + sentence + "\n"; })},
      {"a sentence that counts years",
       page + Forever([&](int i) { return "In " + N(1900 + i) + " " + sentence + " "; })},
      {"heading and paragraph", page + Forever("## " + w.Words(3) + "\n\n" + w.Paragraph(3))},
      {"a block of about 1,000 tokens", page + Forever(w.Paragraph(34))},
      {"a block of about 1,400 tokens", page + Forever(w.Paragraph(47))},
      {"three list items in turn",
       page + Forever("- " + w.Words(5) + "\n- " + w.Words(6) + "\n- " + w.Words(4) + "\n")},
      {"a table row", page + table + Forever(Row({w.Words(2), w.Words(3)}))},
      {"a table row of numbers", page + table + Forever(Row({"12", "0.50", "7", "1,204"}))},
      {"a long table row", page + table + Forever(Row({w.Words(12), w.Words(12), "31.5", w.Words(9)}))},
      {"a whole table", page + Forever(table + Row({w.Words(3), "7"}) + Row({w.Words(4), "12"}) + "</table>\n\n")},
      {"empty cells in one row", page + table + "<tr>" + Forever("<td></td>")},
      {"empty rows", page + table + Forever(Row({"", "", ""}))},
      {"cells of one word in one row", page + table + "<tr>" + Forever("<td>none</td>")},
      {"one picture again and again", page + Forever(Mark("image", 100, 200, 400, 500))},
      {"one picture that trembles",
       page + Forever([&](int i) { return Mark("image", 100 + i % 2, 200, 400 + i % 3, 500); })},
      {"one picture that creeps",
       page + Forever([&](int i) { return Mark("image", 10 + i, 20 + i, 300 + i, 400 + i); })},
      {"a text region with other text each time",
       page + Forever([&](int) { return Mark("text", 57, 463, 778, 596) + w.Sentence() + "\n\n"; })},
      {"a formula", page + Forever("\\( a^2 + b^2 = c^2 \\) ")},
      {"an opening bracket", page + Forever("(")},
      {"dots", page + "Contents " + Forever(".")},
      {"a web address on a line of its own", page + Forever("https://www.example.org/" + w.Word() + "/index.html\n")},
      {"a Chinese sentence", page + Forever("先天下之忧而忧，后天下之乐而乐。")},
      {"one reference that counts",
       page + Forever([&](int i) { return "[" + N(i) + "] " + sentence + " Press, 2004.\n"; })},
  };
  return loops;
}

std::vector<Page> InnocentPages() {
  Writer w(2);
  auto cell_row = [](int cells) { return "<tr>" + Times(cells, "<td></td>") + "</tr>"; };
  std::vector<Page> pages = {
      {"prose to the end of the context", Join(60, [&](int) { return w.Paragraph(8); })},
      {"a long stock list: rows that differ in number and price alone",
       "<table>" +
           Join(120,
                [&](int i) {
                  return Row({N(i + 1), "Box of screws", N(w.Number(2, 9)), w.Price()});
                }) +
           "</table>"},
      {"a table of measurements", "<table>" +
                                      Join(100,
                                           [&](int) {
                                             return Row({w.Price(), w.Price(), w.Price(), w.Price()});
                                           }) +
                                      "</table>"},
      {"accounts that are all zero", "<table>" +
                                         Join(90,
                                              [&](int) {
                                                return Row({w.Words(2), "0.00", "0.00", "0.00", "0.00"});
                                              }) +
                                         "</table>"},
      {"a timetable", "<table>" +
                          Join(80,
                               [&](int i) {
                                 return Row({N(5 + i / 6) + ":" + N(10 + i % 6 * 8), "Harbor", "Museum", "all days"});
                               }) +
                          "</table>"},
      {"twelve pictures", Join(12,
                               [&](int i) {
                                 return Mark("image", 50 + i % 3 * 310, 40 + i / 3 * 240, 340 + i % 3 * 310,
                                             260 + i / 3 * 240);
                               })},
      {"twelve pictures with captions", Join(12,
                                             [&](int i) {
                                               const int x = 50 + i % 3 * 310, y = 40 + i / 3 * 240;
                                               return Mark("image", x, y, x + 290, y + 190) +
                                                      Mark("image_caption", x, y + 195, x + 290, y + 215) + "Figure " +
                                                      N(i + 1) + "\n\n";
                                             })},
      {"a contact sheet of sixty pictures", Join(60,
                                                 [&](int i) {
                                                   return Mark("image", 20 + i % 6 * 160, 20 + i / 6 * 96,
                                                               170 + i % 6 * 160, 110 + i / 6 * 96);
                                                 })},
      {"a newspaper: seventy regions of text", Join(70,
                                                    [&](int i) {
                                                      return Mark("text", 30 + i / 14 * 190, 30 + i % 14 * 68,
                                                                  210 + i / 14 * 190, 95 + i % 14 * 68) +
                                                             w.Paragraph(1);
                                                    })},
      {"lines of a column, one region each",
       Join(60, [&](int i) { return Mark("text", 57, 40 + 14 * i, 512, 52 + 14 * i) + w.Words(6) + "\n\n"; })},
      {"a bibliography", Join(60,
                              [&](int i) {
                                return "[" + N(i + 1) + "] " + w.Name() + ", " + w.Name() + ". " + w.Sentence() +
                                       " Journal of " + w.Name() + " " + N(w.Number(1, 90)) + ", " +
                                       N(w.Number(1950, 2020)) + ".\n";
                              })},
      {"a numbered list", Join(90, [&](int i) { return N(i + 1) + ". " + w.Words(3) + "\n"; })},
      {"a price list with dotted leaders",
       Join(50, [&](int) { return w.Words(2) + " " + Times(w.Number(20, 50), ".") + " " + w.Price() + "\n"; })},
      {"contents: Chapter n, leader, page",
       Join(40, [&](int i) { return "Chapter " + N(i + 1) + " " + Times(36, ".") + " " + N(7 + 11 * i) + "\n"; })},
      {"a page of dotted lines to write on", Times(24, Times(70, ".") + "\n")},
      {"paragraphs between rules", Join(25, [&](int) { return Times(80, "-") + "\n" + w.Paragraph(2); })},
      {"a table drawn in characters", Join(30,
                                           [&](int i) {
                                             return "+" + Times(24, "-") + "+" + Times(12, "-") + "+\n| " + w.Words(2) +
                                                    " | " + N(100 + i) + " |\n";
                                           })},
      {"a program of like lines", Join(70, [&](int i) { return "  out[" + N(i) + "] = in[" + N(i) + "] * gain;\n"; })},
      {"a program", Join(40,
                         [&](int) {
                           return "void " + w.Word() + "(int " + w.Word() + ") {\n  return " + w.Word() + "(" +
                                  w.Word() + ");\n}\n\n";
                         })},
      {"a hexadecimal dump", Join(40,
                                  [&](int i) {
                                    return N(1000 + 16 * i) + ":" +
                                           Join(8,
                                                [&](int) {
                                                  return " " + std::string(1, static_cast<char>('a' + w.Number(0, 5))) +
                                                         N(w.Number(0, 9));
                                                }) +
                                           "\n";
                                  })},
      {"a log", Join(60,
                     [&](int i) {
                       return "2031-10-30 12:" + N(10 + i / 2) + ":" + N(10 + i % 50) + " INFO request served in " +
                              N(w.Number(2, 40)) + " ms\n";
                     })},
      {"a form: names and lines to write on",
       Join(30, [&](int) { return w.Name() + " " + w.Word() + ": " + Times(30, "_") + "\n"; })},
      {"a sign-in sheet: thirty equal lines",
       Times(30, "Name: " + Times(14, "_") + " Signature: " + Times(14, "_") + "\n")},
      {"an answer sheet of a hundred rows", Join(100, [&](int i) { return N(i + 1) + " (A) (B) (C) (D)\n"; })},
      {"a column of boxes to tick", Join(45, [&](int) { return "[ ] " + w.Words(4) + "\n"; })},
      {"yes or no, forty times", Times(40, "☐ Yes ☐ No\n")},
      {"an empty ledger", "<table>" + Row({"Date", "Text", "In", "Out", "Sum"}) + Times(40, cell_row(10)) + "</table>"},
      {"a sheet of thirty address labels", Times(30, "Harbor Museum\n12 River Street\nNorthfield\n\n")},
      {"a song with a refrain",
       Join(8,
            [&](int i) {
              return N(i + 1) + ". " + w.Paragraph(4) +
                     "Oh silver river, carry me home,\nover the valley and under the stone.\n\n";
            })},
      {"a calendar of a year",
       Join(12,
            [&](int) {
              return w.Name() + "\n<table>" + Row({"Mo", "Tu", "We", "Th", "Fr", "Sa", "Su"}) +
                     Join(5,
                          [&](int week) {
                            const int d = 7 * week;
                            return Row({N(d + 1), N(d + 2), N(d + 3), N(d + 4), N(d + 5), N(d + 6), N(d + 7)});
                          }) +
                     "</table>\n\n";
            })},
  };
  return pages;
}

class RepeatGuardTest : public ::testing::Test {
  void SetUp() override {
    if (!SplitPattern::BuiltIn()) GTEST_SKIP() << "the test set is made of text: it needs PCRE2";
  }
};

TEST_F(RepeatGuardTest, FindsThirtyLoops) {
  const std::vector<Page> loops = Loops();
  EXPECT_EQ(loops.size(), 30u);
  for (const Page& page : loops) {
    const Verdict verdict = Judge(page.text);
    EXPECT_TRUE(verdict.loop) << page.what << ": " << verdict.tokens;
  }
}

TEST_F(RepeatGuardTest, SparesThirtyPages) {
  const std::vector<Page> pages = InnocentPages();
  EXPECT_EQ(pages.size(), 30u);
  for (const Page& page : pages) {
    const Verdict verdict = Judge(page.text);
    EXPECT_FALSE(verdict.loop) << page.what << ": after " << verdict.tokens << " tokens: " << *verdict.loop;
  }
}

// Pushes tokens into a new detector; how many it took until the page was to end, 0: it was not.
int EndsAfter(const std::vector<std::pair<int32_t, std::string>>& tokens) {
  BlockRepeatDetector detector;
  for (size_t i = 0; i < tokens.size(); ++i)
    if (detector.Push(tokens[i].first, tokens[i].second)) return static_cast<int>(i) + 1;
  return 0;
}

// repeats of a block of unlike words, the first with the text given.
std::vector<std::pair<int32_t, std::string>> Blocks(int block, int repeats, const std::string& first = "word") {
  std::vector<std::pair<int32_t, std::string>> tokens;
  for (int i = 0; i < block * repeats; ++i) tokens.emplace_back(i % block, i % block == 0 ? first : "word");
  return tokens;
}

TEST(BlockRepeatDetectorTest, EndsWithTheTokenThatMakesItARepeat) {
  EXPECT_EQ(EndsAfter(Blocks(1, 500)), 400);
  EXPECT_EQ(EndsAfter(Blocks(90, 10)), 400);    // 4.4 repeats: 400 tokens in all
  EXPECT_EQ(EndsAfter(Blocks(300, 10)), 1200);  // 4 repeats
  EXPECT_EQ(EndsAfter(Blocks(300, 3)), 0);
  EXPECT_EQ(EndsAfter(Blocks(1500, 5)), 6000);
  EXPECT_EQ(EndsAfter(Blocks(1501, 5)), 0);
}

TEST(BlockRepeatDetectorTest, ShortLinesAndWhatHasNoLettersTakeLonger) {
  EXPECT_EQ(EndsAfter(Blocks(71, 50, "\n")), 2000);
  EXPECT_EQ(EndsAfter(Blocks(72, 50, "\n")), 400);
  EXPECT_EQ(EndsAfter(Blocks(20, 200, "</td>")), 2000);
  EXPECT_EQ(EndsAfter(Blocks(1, 3000, ".")), 2000);
  EXPECT_EQ(EndsAfter(Blocks(1, 3000, "\u2610")), 2000);
  EXPECT_EQ(EndsAfter(Blocks(1, 3000, "\u5B57")), 400);
}

// n blocks whose first token is a number that counts, in one digit a token, each block within what stands around it.
std::vector<std::pair<int32_t, std::string>> CountingBlocks(int block, int repeats, const std::string& before,
                                                            const std::string& after) {
  std::vector<std::pair<int32_t, std::string>> tokens;
  for (int i = 0; i < repeats; ++i) {
    tokens.emplace_back(1000, before);
    for (const char digit : std::to_string(i)) tokens.emplace_back(2000 + digit, std::string(1, digit));
    for (int k = 0; k < block; ++k) tokens.emplace_back(k, "word");
    tokens.emplace_back(1001, after);
  }
  return tokens;
}

TEST(BlockRepeatDetectorTest, NumbersAreOneClassButNotInTableRows) {
  EXPECT_GT(EndsAfter(CountingBlocks(100, 20, "(", ")")), 400);
  EXPECT_EQ(EndsAfter(CountingBlocks(100, 20, "<tr>", "</tr>")), 0);
  EXPECT_GT(EndsAfter(CountingBlocks(100, 20, "</tr>", "(")), 400);
}

// The rule itself, token by token, over sequences that fall into loops and out of them again.
TEST(BlockRepeatDetectorTest, AgreesWithTheDefinition) {
  std::mt19937 random(3);
  int ends = 0;
  for (int round = 0; round < 60; ++round) {
    std::vector<int32_t> ids;
    while (ids.size() < 1000) {
      const int block = 1 + static_cast<int>(random() % 120), repeats = 1 + static_cast<int>(random() % 8);
      const size_t start = ids.size();
      for (int i = 0; i < block; ++i) ids.push_back(static_cast<int32_t>(random() % 2));
      for (int i = block; i < block * repeats; ++i) ids.push_back(ids[start + i - block]);
    }
    BlockRepeatDetector detector;
    for (int length = 1; length <= static_cast<int>(ids.size()); ++length) {
      bool repeats = false;
      for (int p = 1; p <= length / 4 && !repeats; ++p) {
        int run = p;
        while (run < length && ids[length - 1 - run] == ids[length - 1 - run + p]) ++run;
        repeats = run >= 4 * p && run >= 400;
      }
      ASSERT_EQ(detector.Push(ids[length - 1], "word").has_value(), repeats) << round << ": " << length;
      ends += repeats;
    }
  }
  EXPECT_GT(ends, 500);
}

bool BoxesEnd(const std::string& text) {
  RepeatedBoxDetector detector;
  return detector.Push(text).has_value();
}

TEST(RepeatedBoxDetectorTest, SixteenRegionsInOnePlace) {
  auto same = [](int) { return Mark("image", 10, 20, 30, 40) + "text\n"; };
  EXPECT_FALSE(BoxesEnd(Join(15, same)));
  EXPECT_TRUE(BoxesEnd(Join(16, same)));
  EXPECT_FALSE(BoxesEnd(Join(15, same) + Mark("text", 10, 20, 30, 40) + Join(15, same)));
  EXPECT_FALSE(BoxesEnd(Join(15, same) + Mark("image", 10, 20, 30, 43) + Join(14, same)));
  EXPECT_TRUE(BoxesEnd(Join(15, same) + Mark("image", 10, 20, 30, 42)));
  EXPECT_TRUE(BoxesEnd(Join(16, [](int i) { return Mark("image", 2 * i, 20, 500, 40); })));
  EXPECT_FALSE(BoxesEnd(Join(40, [](int i) { return Mark("image", 3 * i, 20, 500, 40); })));
}

TEST(RepeatedBoxDetectorTest, SeveralBoxesCountTogether) {
  auto pair = [](int i) {
    return "<|ref|>image<|/ref|><|det|>[[1, 2, 3, 4], [5, 6, 7, " + N(8 + i % 2) + "]]<|/det|>";
  };
  EXPECT_TRUE(BoxesEnd(Join(16, pair)));
  EXPECT_FALSE(BoxesEnd(Join(40, [&](int i) { return i % 2 ? pair(i) : Mark("image", 1, 2, 3, 4); })));
}

TEST(RepeatedBoxDetectorTest, WhatIsNoRegionIsNotCounted) {
  for (const char* text : {"<|ref|>image<|/ref|><|det|>[[a, 2, 3, 4]]<|/det|>", "<|ref|>image<|/ref|><|det|>[]<|/det|>",
                           "<|ref|>image<|det|>[[1, 2, 3, 4]]<|/det|>", "<|det|>[[1, 2, 3, 4]]<|/det|>",
                           "<|ref|>image<|/ref|><|det|>[[99999999999, 2, 3, 4]]<|/det|>", "<|ref|>", "<|/det|>"})
    EXPECT_FALSE(BoxesEnd(Times(100, text))) << text;
  EXPECT_TRUE(BoxesEnd(Times(16, "<<|ref|><|ref|>a<|/ref|><|det|>[[1,2,3,4]]<|/det|>")));
  EXPECT_TRUE(BoxesEnd("<|ref|>" + std::string(5000, 'x') + Times(16, Mark("a", 1, 2, 3, 4))));
}

TEST(RepeatedBoxDetectorTest, CutsDoNotMatter) {
  const std::string text = "page\n" + Times(16, "<" + Mark("image", 10, 20, 30, 40) + "words");
  std::mt19937 random(4);
  for (int round = 0; round < 100; ++round) {
    RepeatedBoxDetector detector;
    int ends = 0;
    for (size_t at = 0; at < text.size();) {
      const size_t length = 1 + random() % 12;
      ends += detector.Push(std::string_view(text).substr(at, length)).has_value();
      at += length;
    }
    EXPECT_EQ(ends, 1);
  }
}

}  // namespace
}  // namespace quire
