// Frames, strips of a page, tables and error rates; what single raw texts give is in cases_test.cc.
#include <gtest/gtest.h>

#include "base/mmap_file.h"
#include "document/cer.h"
#include "document/markdown.h"
#include "document/page_record.h"
#include "document/tables.h"

namespace quire {
namespace {

TEST(Frame, PixelsAreThoseOfThePublishedCode) {
  // int(x / 999 * W), model.md 9: 500 / 999 * 1191 = 596.096, 333 / 999 * 1684 = 561.33.
  const BlockBox box = Frame::WholePage(1191, 1684).Map({500, 333, 999, 999});
  EXPECT_EQ(box.px, (std::array<int, 4>{596, 561, 1190, 1683}));
  EXPECT_EQ(box.grid, (Box{500, 333, 999, 999}));
  EXPECT_DOUBLE_EQ(box.unit[0], 500 / 999.0);
  EXPECT_DOUBLE_EQ(box.unit[3], 1.0);
}

TEST(Frame, TheGridOfAWholePageStaysAsItIs) {
  for (int width_px : {1, 7, 640, 1191, 15000})
    for (int x = 0; x <= 999; ++x) {
      const BlockBox box = Frame::WholePage(width_px, width_px).Map({x, x, x, x});
      ASSERT_EQ(box.grid, (Box{x, x, x, x})) << width_px;
      ASSERT_LT(box.px[0], width_px);
    }
}

TEST(Frame, AStripsBoxesLandOnThePage) {
  const Frame strip{1000, 2000, {100, 1500, 800, 500}};
  const BlockBox box = strip.Map({0, 0, 999, 999});
  EXPECT_EQ(box.px, (std::array<int, 4>{100, 1500, 900, 1999}));
  EXPECT_EQ(box.grid, (Box{100, 749, 899, 999}));
  EXPECT_DOUBLE_EQ(box.unit[1], 0.75);
}

std::string Mark(const std::string& label) {
  return "<|ref|>" + label + "<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>\n";
}

TEST(Strips, BlocksAndStreamOfSeveralTextsAgree) {
  struct Part {
    std::string raw;
    bool joins_next;
  };
  const std::vector<Part> parts = {{Mark("title") + "# Title\n\n" + Mark("text") + "A paragraph that", true},
                                   {Mark("text") + "goes on", true},
                                   {" \n", false},
                                   {Mark("text") + "a new one <|ref|", true},
                                   {Mark("image"), false},
                                   {Mark("text") + "end\n", false}};
  std::vector<Block> blocks;
  MarkdownStream stream(Labels::kKinds, {.image_prefix = "images/"});
  std::string streamed;
  bool joins = false;
  for (const Part& part : parts) {
    AppendBlocks(ParseGrounding(part.raw), Frame::WholePage(10, 10), Labels::kKinds, joins, &blocks);
    streamed += stream.Push(part.raw);
    streamed += stream.EndPart(part.joins_next);
    joins = part.joins_next;
  }
  streamed += stream.Finish();
  EXPECT_EQ(streamed, "# Title\n\nA paragraph that\ngoes on\n\na new one <|ref|\n![](images/0.jpg)\n\nend\n");
  EXPECT_EQ(streamed, WriteMarkdown(blocks, {.image_prefix = "images/"}));
  for (size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(blocks[i].order, static_cast<int>(i));
}

TEST(MarkdownStream, GivesTextAsItComes) {
  MarkdownStream stream(Labels::kKinds);
  EXPECT_EQ(stream.Push("<|ref|>text<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>\nHel"), "Hel");
  EXPECT_EQ(stream.Push("lo \n"), "lo");
  EXPECT_EQ(stream.Push("world"), " \nworld");
  EXPECT_EQ(stream.Push("\n\n<|re"), "");
  EXPECT_EQ(stream.Push("f|>text<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>\n"), "");
  EXPECT_EQ(stream.Push("x"), "\n\nx");
  EXPECT_EQ(stream.Finish(), "\n");
}

TEST(Markdown, OfTheReferenceOutputsIsTheSamplesTrueText) {
  const std::string golden = QUIRE_SOURCE_DIR "/tests/golden/tiny/";
  const Json index = Json::Parse(ReadFile(golden + "index.json"), "index.json");
  for (const Json& sample : index.At("samples").as_array()) {
    const std::string& name = sample.as_string();
    const Json reference = Json::Parse(ReadFile(golden + name + ".json"), name);
    const bool grounded = reference.At("truth_mode").as_int() == 1;
    const std::string& raw = reference.At(grounded ? "grounded" : "free").At("text").as_string();
    std::vector<Block> blocks;
    AppendBlocks(ParseGrounding(raw), Frame::WholePage(1000, 1000), Labels::kKinds, false, &blocks);
    EXPECT_EQ(WriteMarkdown(blocks), ReadFile(QUIRE_SOURCE_DIR "/samples/" + name + ".txt")) << name;
  }
}

TEST(Tables, WidthsCountSpans) {
  const auto widths = [](std::string_view text) { return RowWidths(FindTables(text).at(0)); };
  EXPECT_EQ(widths("<table><tr><td>a<td>b<tr><td>c</table>"), (std::vector<int>{2, 1}));
  EXPECT_EQ(widths("<table><tr><td rowspan=3 colspan=\"2\">a</td></tr><tr><td>b</td></tr><tr></tr></table>"),
            (std::vector<int>{2, 3, 2}));
  EXPECT_EQ(widths("<table><tr><td colspan=99999999999 rowspan=-1>a</table>"), (std::vector<int>{1}));
  EXPECT_EQ(widths("<table><td>no row</td></table>"), (std::vector<int>{1}));
}

TEST(Tables, OtherTagsAreNone) {
  EXPECT_TRUE(FindTables("<tablet><table-x></table><table").empty());
  EXPECT_TRUE(CheckTables("<tr><td>a</td></tr></table>").empty());
}

TEST(PageRecord, OnlyTheStatusesThatSayTheTextIsNotSoundFail) {
  std::string failed;
  for (const PageStatus status : {PageStatus::kOk, PageStatus::kBlank, PageStatus::kDoubtful, PageStatus::kLength,
                                  PageStatus::kLoop, PageStatus::kError})
    failed += std::string(Name(status)) + (IsFailed(status) ? "! " : " ");
  EXPECT_EQ(failed, "ok blank doubtful! length! loop! error! ");
}

TEST(PageRecord, JsonHoldsEveryFieldInOrder) {
  PageRecord record;
  record.status = PageStatus::kError;
  record.reason = "decoder died";
  record.source = "a.png";
  record.width_px = 100;
  record.height_px = 200;
  record.strips = {{0, 0, 100, 50}};
  record.times_ms = {{"decode", 1.5}, {"vision", 2}};
  record.guard = {.ngram_size = 20, .ngram_window = 90, .whitelist = {"<td>"}};
  record.error = PageError{ErrorKind::kBadInput, "decoder died"};
  Block block;
  block.logprobs.Add(-1);
  record.blocks = {block};
  EXPECT_EQ(
      ToJson(record).Dump(),
      R"({"schema_version":1,"status":"error","reason":"decoder died","source":"a.png","page":1,"width_px":100,)"
      R"("height_px":200,"task":"","prompt":"","mode":"","grid":{"columns":1,"rows":1},)"
      R"("strips":[{"x":0,"y":0,"width":100,"height":50}],"image_tokens":0,"prompt_tokens":0,"output_tokens":0,)"
      R"("times_ms":{"decode":1.5,"vision":2.0},"model":"","dtype":"","device":"",)"
      R"("guard":{"ngram_size":20,"ngram_window":90,"whole_sequence":false,"whitelist":["<td>"]},"doubtful_share":0.0,)"
      R"("text":"","blocks":[{"order":0,"kind":"text","label":"","continues":false,"boxes":[],"content":"",)"
      R"("confidence":0.3679,"min_logprob":-1.0,"tokens":1,"warnings":[]}],"warnings":[],)"
      R"("error":{"kind":"bad_input","message":"decoder died"}})");
}

TEST(PageRecord, EveryFieldIsDescribed) {
  PageRecord record;
  Block block;
  block.boxes.emplace_back();
  record.blocks = {block};
  record.strips.emplace_back();
  record.error = PageError{};
  const std::string formats = ReadFile(QUIRE_SOURCE_DIR "/docs/formats.md");
  const auto check = [&](const auto& self, const Json& json) -> void {
    if (json.is_array())
      for (const Json& item : json.as_array()) self(self, item);
    if (!json.is_object()) return;
    for (const auto& [key, value] : json.as_object()) {
      EXPECT_NE(formats.find("`" + key + "`"), std::string::npos) << key;
      self(self, value);
    }
  };
  check(check, ToJson(record));
}

TEST(CharacterErrorRate, CountsCodePointsAfterJoiningWhiteSpace) {
  const auto errors = [](std::string_view truth, std::string_view read) {
    return CountCharacterErrors(truth, read).errors;
  };
  EXPECT_EQ(errors("kitten", "sitting"), 3u);
  EXPECT_EQ(errors(" a  b\n\nc ", "a b c"), 0u);
  EXPECT_EQ(errors("größer", "groesser"), 4u);
  EXPECT_EQ(errors("", "abc"), 3u);
  EXPECT_EQ(errors("abc", ""), 3u);
  EXPECT_EQ(errors("ab", "aXb"), 1u);
  EXPECT_DOUBLE_EQ(CountCharacterErrors("abcd", "abce").rate(), 0.25);
  EXPECT_DOUBLE_EQ(CountCharacterErrors("字字", "字").rate(), 0.5);
}

}  // namespace
}  // namespace quire
