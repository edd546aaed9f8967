#include "document/grounding.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

namespace quire {
namespace {

struct Events : RegionSink {
  void Open(const Region& head) override { log += "open(" + head.label + ") "; }
  void Content(std::string_view more) override { log += "'" + std::string(more) + "' "; }
  void Close(Region region) override {
    log += "close ";
    regions.push_back(std::move(region));
  }
  std::string log;
  std::vector<Region> regions;
};

std::vector<Region> ParseTokens(const std::vector<std::pair<std::string, double>>& tokens) {
  Events events;
  GroundingParser parser(&events);
  for (const auto& [text, logprob] : tokens) parser.Push(text, logprob);
  parser.Finish();
  return events.regions;
}

TEST(Grounding, DeliversContentAsSoonAsItIsSurelyNoMark) {
  Events events;
  GroundingParser parser(&events);
  parser.Push("<|ref|>text<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>\n");
  EXPECT_EQ(events.log, "open(text) ");
  parser.Push("one <");
  EXPECT_EQ(events.log, "open(text) 'one ' ");
  parser.Push("|r");
  EXPECT_EQ(events.log, "open(text) 'one ' ");
  parser.Push("x");
  EXPECT_EQ(events.log, "open(text) 'one ' '<|r' 'x' ");
  parser.Push("\n<|ref|>image<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>");
  EXPECT_EQ(events.log, "open(text) 'one ' '<|r' 'x' '\n' close open(image) ");
  EXPECT_EQ(events.regions.at(0).content, "one <|rx");
}

TEST(Grounding, RegionsCoverTheTextWithoutGaps) {
  const std::string text =
      " \n<|ref|>a<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>\nb\n\n<|ref|>c<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>  ";
  const std::vector<Region> regions = ParseGrounding(text);
  ASSERT_EQ(regions.size(), 2u);
  EXPECT_EQ(regions[0].begin, 0u);
  EXPECT_EQ(regions[0].end, text.rfind("<|ref|>"));
  EXPECT_EQ(regions[1].begin, regions[0].end);
  EXPECT_EQ(regions[1].end, text.size());
}

TEST(Grounding, LogProbabilitiesAreTheContentsOrElseTheMarks) {
  const std::vector<Region> regions = ParseTokens({
      {"<|ref|>", -9},
      {"text", -9},
      {"<|/ref|>", -9},
      {"<|det|>", -9},
      {"[[1, 2, 3, 4]]", -9},
      {"<|/det|>", -9},
      {"\n", -5},  // blank: not counted
      {"one", -1},
      {"", -2},
      {"\xe5\xad\x97", -3},  // the second token is the first part of a character
      {"\n\n", -5},
      {"<|ref|>", -1},
      {"image", -2},
      {"<|/ref|>", -3},
      {"<|det|>", -1},
      {"[[1, 2, 3, 4]]", -2},
      {"<|/det|>", -3},
      {"\n", -5},
  });
  ASSERT_EQ(regions.size(), 2u);
  EXPECT_EQ(regions[0].logprobs.tokens, 3);
  EXPECT_DOUBLE_EQ(regions[0].logprobs.mean(), -2);
  EXPECT_DOUBLE_EQ(regions[0].logprobs.min, -3);
  EXPECT_EQ(regions[1].logprobs.tokens, 6);
  EXPECT_DOUBLE_EQ(regions[1].logprobs.mean(), -2);
}

TEST(Grounding, AnOpenMarksTokensCountToTheContentItTurnsInto) {
  const std::vector<Region> regions = ParseTokens({{"a", -1}, {"<|ref|>", -3}, {"b", -5}});
  ASSERT_EQ(regions.size(), 1u);
  EXPECT_EQ(regions[0].logprobs.tokens, 3);
  EXPECT_DOUBLE_EQ(regions[0].logprobs.min, -5);
}

TEST(Grounding, LogProbabilitiesThatAreNoNumberAreLeftOut) {
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Region> regions = ParseTokens({{"a", nan}, {"b", -1}});
  EXPECT_EQ(regions.at(0).logprobs.tokens, 1);
  EXPECT_DOUBLE_EQ(regions.at(0).logprobs.min, -1);
}

TEST(Grounding, AMarkOverTheLimitIsText) {
  const std::string longest(GroundingParser::kMaxMarkBytes - 14, 'x');
  const auto mark = [](const std::string& label) {
    return "<|ref|>" + label + "<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>";
  };
  // The list must fit as well: 7 + 8 + 7 bytes of marks and 14 of the list.
  EXPECT_EQ(ParseGrounding(mark(longest.substr(22))).at(0).label, longest.substr(22));
  const std::string too_long = mark(longest.substr(21));
  for (size_t chunk : {size_t{1}, size_t{1000}, too_long.size()}) {
    Events events;
    GroundingParser parser(&events);
    for (size_t at = 0; at < too_long.size(); at += chunk) parser.Push(too_long.substr(at, chunk));
    parser.Finish();
    ASSERT_EQ(events.regions.size(), 1u) << chunk;
    EXPECT_FALSE(events.regions[0].marked);
    EXPECT_EQ(events.regions[0].content, too_long);
  }
}

TEST(Grounding, HostileTextIsLinearAndKept) {
  for (const std::string part :
       {"<|ref|>", "<|ref|><|/ref|>", "<|ref|>a<|/ref|><|det|>", "<", "<|", "<|/det|>", "<table><td", "\n"}) {
    std::string text;
    while (text.size() < 1000000) text += part;
    size_t covered = 0;
    for (const Region& region : ParseGrounding(text)) covered += region.end - region.begin;
    EXPECT_EQ(covered, part == "\n" ? 0 : text.size()) << part;
  }
}

}  // namespace
}  // namespace quire
