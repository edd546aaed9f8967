#include "tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "base/mmap_file.h"
#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/stream_decoder.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

const std::string kSource = QUIRE_SOURCE_DIR;

const Tokenizer& Tiny() {
  static const Tokenizer tokenizer = Tokenizer::Load(kSource + "/models/tiny/tokenizer.json");
  return tokenizer;
}

std::string Replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

// A whole tokenizer.json: the bytes are the tokens 0 to 255, merges make 256 to 259, two added tokens follow.
std::string SmallJson() {
  Json vocab;
  for (int byte = 0; byte < 256; ++byte) vocab.Set(SpellBytes(std::string(1, static_cast<char>(byte))), byte);
  for (const char* merged : {"ab", "bc", "abc", "Ġa"}) vocab.Set(merged, vocab.as_object().size());
  const std::string json = R"({
    "added_tokens": [{"id": 260, "content": "<x>", "special": true, "normalized": false, "lstrip": false},
                     {"id": 261, "content": "<x>>", "special": false, "normalized": false},
                     {"id": 262, "content": ">ab", "special": false, "normalized": true}],
    "normalizer": null,
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}"}, "behavior": "Isolated", "invert": false},
      {"type": "Split", "pattern": {"Regex": " ?[a-z]+|\\s+"}, "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
    "post_processor": null,
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "dropout": null, "ignore_merges": false, "vocab": @,
              "merges": ["b c", "a b", "a bc", "Ġ a"]}})";
  return Replaced(json, "@", vocab.Dump());
}

Tokenizer Small(std::string_view from = "", std::string_view to = "") {
  return Tokenizer::Parse(Replaced(SmallJson(), from, to), "small.json");
}

class EncodeTest : public ::testing::Test {
  void SetUp() override {
    if (!SplitPattern::BuiltIn()) GTEST_SKIP() << "built without PCRE2";
  }
};

TEST(ByteLevelTest, SpellsEveryByteAsGpt2Does) {
  EXPECT_EQ(SpellBytes("a\n \x7F\xA0\xAD\xFF"), "aĊĠġłŃÿ");
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
  EXPECT_EQ(UnspellBytes(SpellBytes(bytes)), bytes);
  EXPECT_EQ(UnspellBytes(" "), std::nullopt);
  EXPECT_EQ(UnspellBytes("｜"), std::nullopt);
}

TEST_F(EncodeTest, MergesByRankAndThenFromTheLeft) {
  const Tokenizer t = Small();
  EXPECT_THAT(t.Encode("abc"), ElementsAre(258));         // b c first, then a bc
  EXPECT_THAT(t.Encode("abab"), ElementsAre(256, 256));   // no merge of these two
  EXPECT_THAT(t.Encode("abcbc"), ElementsAre(258, 257));  //
  EXPECT_THAT(t.Encode("ab"), ElementsAre(256));
  EXPECT_THAT(t.Encode(" ab"), ElementsAre(' ', 256));  // a b has the better rank than Ġ a
  EXPECT_THAT(t.Encode(" a"), ElementsAre(259));
  EXPECT_THAT(t.Encode(""), ElementsAre());
}

TEST_F(EncodeTest, SplitsIsolateMatchesAndGaps) {
  const Tokenizer t = Small();
  EXPECT_THAT(t.Encode("a1b"), ElementsAre('a', '1', 'b'));
  EXPECT_THAT(t.Encode("a\tb"), ElementsAre('a', '\t', 'b'));
  EXPECT_THAT(t.Encode("a-b"), ElementsAre('a', '-', 'b'));  // "-" matches neither pattern
}

TEST_F(EncodeTest, AddedTokensAreCutFirstLongestFirst) {
  const Tokenizer t = Small();
  EXPECT_THAT(t.Encode("a<x>b"), ElementsAre('a', 260, 'b'));
  EXPECT_THAT(t.Encode("<x>>"), ElementsAre(261));
  EXPECT_THAT(t.Encode("<x><x"), ElementsAre(260, '<', 'x'));
  EXPECT_THAT(t.Encode("<x>>ab"), ElementsAre(261, 256));  // normalized ones come after the others
  EXPECT_THAT(t.Encode("x>abc"), ElementsAre('x', 262, 'c'));
  EXPECT_TRUE(t.IsSpecial(260));
  EXPECT_FALSE(t.IsSpecial(261));
  EXPECT_FALSE(t.IsSpecial(-1));
  EXPECT_FALSE(t.IsSpecial(100000));
}

TEST(TokenizerTest, WithoutPcre2OnlyAddedTokensEncode) {
  if (SplitPattern::BuiltIn()) GTEST_SKIP() << "built with PCRE2";
  EXPECT_THAT(Small().Encode("<x>"), ElementsAre(260));
  try {
    Small().Encode("<x>a");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("-DQUIRE_PCRE2=ON"));
  }
}

TEST(TokenizerTest, FindsTokensByTheirBytes) {
  const Tokenizer t = Small();
  EXPECT_EQ(t.Find("<x>"), 260);
  EXPECT_EQ(t.Find(" a"), 259);
  EXPECT_EQ(t.Find("zz"), std::nullopt);
  EXPECT_EQ(t.Bytes(258), "abc");
  EXPECT_EQ(t.Bytes(-1), "");
  EXPECT_EQ(t.Bytes(263), "");
  EXPECT_EQ(t.size(), 263u);
  EXPECT_EQ(t.TokenOrThrow("<x>"), 260);
  try {
    t.TokenOrThrow("<image>");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadModel);
    EXPECT_THAT(error.what(), HasSubstr("small.json: wanted the token \"<image>\""));
  }
}

TEST_F(EncodeTest, MergesAsPairsAreTheSame) {
  const Tokenizer t = Small(R"(["b c", "a b", "a bc", "Ġ a"])", R"([["b", "c"], ["a", "b"], ["a", "bc"], ["Ġ", "a"]])");
  EXPECT_THAT(t.Encode("abc a"), ElementsAre(258, 259));
}

TEST_F(EncodeTest, IllFormedTextIsRepaired) {
  EXPECT_EQ(Small().Encode("a\xFF"
                           "b"),
            Small().Encode("a\uFFFDb"));
  EXPECT_EQ(Small().Decode(Ids{'a', 0xC3, 'b', 100000, -5}), "a\uFFFDb");
}

// A change to the small file, and what the refusal must name.
struct BadFile {
  const char *from, *to, *message;
};

void ExpectRefused(std::string_view text, std::string_view message) {
  try {
    Tokenizer::Parse(text, "small.json");
    ADD_FAILURE() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadModel);
    EXPECT_THAT(error.what(), HasSubstr(std::string(message)));
    EXPECT_EQ(std::string(error.what()).rfind("small.json: ", 0), 0u) << error.what();
  }
}

class BadFileTest : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadFileTest, IsRefusedByName) {
  const auto [from, to, message] = GetParam();
  ExpectRefused(Replaced(SmallJson(), from, to), message);
}

INSTANTIATE_TEST_SUITE_P(
    UnknownKinds, BadFileTest,
    ::testing::Values(
        BadFile{R"("BPE")", R"("WordPiece")", "small.json: model: wanted the type \"BPE\", found \"WordPiece\""},
        BadFile{R"("dropout": null)", R"("dropout": 0.1)", "dropout"},
        BadFile{R"("ignore_merges": false)", R"("ignore_merges": true)", "ignore_merges"},
        BadFile{R"("normalizer": null)", R"("normalizer": {"type": "NFC"})",
                "normalizer: wanted the type \"Sequence\", found \"NFC\""},
        BadFile{R"("normalizer": null)",
                R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "Lowercase"}]})", "Lowercase"},
        BadFile{R"("decoder": {"type": "ByteLevel"})", R"("decoder": {"type": "Metaspace"})",
                "decoder: wanted the type \"ByteLevel\", found \"Metaspace\""},
        BadFile{R"("type": "Sequence")", R"("type": "Metaspace")",
                "pre_tokenizer: wanted the type \"Sequence\", found \"Metaspace\""},
        BadFile{R"("type": "Split")", R"("type": "Digits")",
                "pretokenizers: item 0: wanted the type \"Split\", found \"Digits\""},
        BadFile{R"("Isolated")", R"("Removed")", "behavior: wanted \"Isolated\", found \"Removed\""},
        BadFile{R"("invert": false)", R"("invert": true)", "invert"},
        BadFile{R"("Regex")", R"("String")", "pattern: wanted the key \"Regex\""},
        BadFile{R"("add_prefix_space": false)", R"("add_prefix_space": true)", "add_prefix_space"},
        BadFile{R"("use_regex": false)", R"("use_regex": true)", "use_regex"},
        BadFile{R"("lstrip": false)", R"("lstrip": true)", "added_tokens: item 0: lstrip"},
        BadFile{R"({1,3})", R"({1,3}\\d)", "\\d"}, BadFile{R"( ?[a-z]+)", R"(^[a-z]+)", "\"^\""},
        BadFile{R"( ?[a-z]+)", R"([a-z&&[b]]+)", "&&"}, BadFile{R"( ?[a-z]+)", R"(\\p{Han}+)", "\\p{Ha"},
        BadFile{R"( ?[a-z]+)", R"((?<name>a))", "(?<"}));

INSTANTIATE_TEST_SUITE_P(
    Damage, BadFileTest,
    ::testing::Values(
        BadFile{R"("a":97)", R"("a":"97")", "model: vocab: a: wanted an integer, found a string"},
        BadFile{R"("a":97)", R"("a":-1)", "wanted an id from 0"},
        BadFile{R"("a":97)", R"("a":4194304)", "wanted an id from 0"},
        BadFile{R"("a":97)", R"("a":98)", "wanted one token with the id 98"},
        BadFile{R"("a":97,)", "", "wanted the token \"a\", found none"},
        BadFile{R"("abc":258,)", "", "wanted the token \"abc\", found none"},
        BadFile{R"("b c")", R"("b  c")", "model: merges: item 0: wanted two tokens"},
        BadFile{R"("b c")", R"("bc")", "model: merges: item 0: wanted two tokens"},
        BadFile{R"("b c")", R"(["b"])", "model: merges: item 0: wanted two tokens, found 1"},
        BadFile{R"("b c")", R"(7)", "model: merges: item 0: wanted a string, found an integer"},
        BadFile{R"("id": 260)", R"("id": 97)", "wanted one token with the id 97"},
        BadFile{R"("content": "<x>")", R"("content": "abc")", "wanted one id for the token \"abc\""},
        BadFile{R"("content": "<x>")", R"("content": "")", "added_tokens: item 0: content"},
        BadFile{R"("content": "<x>")", R"("content": null)",
                "added_tokens: item 0: content: wanted a string, found null"},
        BadFile{R"("special": true)", R"("special": 1)", "added_tokens: item 0: special: wanted a boolean"},
        BadFile{R"("merges")", R"("mergez")", "model: wanted the key \"merges\", found none"},
        BadFile{R"("model")", R"("modell")", "wanted the key \"model\", found none"},
        BadFile{R"("decoder": {"type": "ByteLevel"})", R"("decoder": [])", "decoder: wanted an object, found an array"},
        BadFile{R"({
    "added_tokens")",
                R"([{"added_tokens")", "not valid JSON"}));

TEST(TokenizerTest, RefusesEveryTruncatedFile) {
  const std::string whole = SmallJson();
  for (size_t length = 0; length < whole.size(); ++length)
    ExpectRefused(std::string_view(whole).substr(0, length), "not valid JSON");
}

TEST(TokenizerTest, MissingFileIsNotFound) {
  try {
    Tokenizer::Load("/no/such/tokenizer.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNotFound);
    EXPECT_THAT(error.what(), HasSubstr("/no/such/tokenizer.json"));
  }
}

// The reference's ids for both prompts of every golden picture, and its text for the ids that the model gave.
TEST_F(EncodeTest, TinyModelAgreesWithTheReference) {
  const int32_t image = Tiny().TokenOrThrow("<image>");
  for (const char* name : {"grounded", "headings-list", "large", "line", "paragraph", "table"}) {
    SCOPED_TRACE(name);
    const Json golden = Json::Parse(ReadFile(kSource + "/tests/golden/tiny/" + name + ".json"), name);
    for (const char* prompt : {"free", "grounded"}) {
      const Json& record = golden.At(prompt);
      auto ids_of = [&](const char* key) {
        Ids ids;
        for (const Json& id : record.At(key).as_array()) ids.push_back(static_cast<int32_t>(id.as_int()));
        return ids;
      };
      Ids wanted = ids_of("ids_after_image");
      wanted.insert(wanted.begin(), image);
      EXPECT_EQ(Tiny().Encode(record.At("prompt").as_string()), wanted);
      const Ids output = ids_of("output_ids");
      EXPECT_EQ(Tiny().Decode(output), record.At("text").as_string());
      EXPECT_EQ(Tiny().Decode(Tiny().Encode(record.At("text").as_string())), record.At("text").as_string());
    }
  }
}

std::string RandomText(std::mt19937* random) {
  const char* const kParts[] = {"word",  " Two",     "  ",          "\n\n",     "<td>",
                                "</td>", "<|ref|>",  "12345",       "先天下",   "かな",
                                "é",     "\xCC\x81", "👩‍👩", "\xE2\x82", "\xFF",
                                "$%",    "\r\n",     "\u3000",      "<image",   "<｜end▁of▁sentence｜>"};
  std::string text;
  for (size_t parts = (*random)() % 20; parts > 0; --parts) {
    if ((*random)() % 3 == 0) {
      for (size_t bytes = (*random)() % 6; bytes > 0; --bytes) text.push_back(static_cast<char>((*random)()));
    } else {
      text += kParts[(*random)() % std::size(kParts)];
    }
  }
  return text;
}

TEST_F(EncodeTest, AnyBytesComeBackRepaired) {
  std::mt19937 random(1);
  for (int i = 0; i < 5000; ++i) {
    const std::string text = RandomText(&random);
    EXPECT_EQ(Tiny().Decode(Tiny().Encode(text)), RepairUtf8(text));
  }
}

TEST_F(EncodeTest, LongPiecesAreNotQuadratic) {
  for (const char* unit : {"a", "the", " ", "1", "-", "\n"}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(Tiny().Decode(Tiny().Encode(text)), text);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));  // quadratic: hours
  }
}

TEST_F(EncodeTest, ServesManyThreads) {
  std::mt19937 random(2);
  std::vector<std::string> texts;
  std::vector<Ids> wanted;
  for (int i = 0; i < 300; ++i) {
    texts.push_back(RandomText(&random));
    wanted.push_back(Tiny().Encode(texts.back()));
  }
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int& mine : wrong)
    threads.emplace_back([&] {
      for (size_t i = 0; i < texts.size(); ++i) mine += Tiny().Encode(texts[i]) != wanted[i];
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, ElementsAre(0, 0, 0, 0));
}

TEST(StreamDecoderTest, NeverGivesHalfACharacter) {
  const Tokenizer small = Small();
  StreamDecoder decoder(small, {260});
  std::vector<std::string> texts;
  for (const int32_t id : {int32_t{'a'}, 0xE2, 0x82, 0xAC, 260, 0xE2, int32_t{'b'}, 261, 0xF0, 0x9F})
    texts.push_back(decoder.Push(id));
  EXPECT_THAT(texts, ElementsAre("a", "", "", "€", "", "", "\uFFFDb", "<x>>", "", ""));
  EXPECT_EQ(decoder.Finish(), "\uFFFD");
  EXPECT_EQ(decoder.Finish(), "");
}

TEST(StreamDecoderTest, PiecesAreTheWholeText) {
  const Ids skip = {0, 1, 2};
  std::mt19937 random(3);
  for (int i = 0; i < 3000; ++i) {
    Ids ids;
    for (size_t left = random() % 30; left > 0; --left)
      ids.push_back(static_cast<int32_t>(random() % 300));  // mostly bytes
    StreamDecoder decoder(Tiny(), skip);
    std::string text;
    for (const int32_t id : ids) {
      const std::string piece = decoder.Push(id);
      ASSERT_TRUE(IsUtf8(piece));
      text += piece;
    }
    text += decoder.Finish();
    std::erase_if(ids, [&](int32_t id) { return id <= 2; });
    EXPECT_EQ(text, Tiny().Decode(ids));
  }
}

}  // namespace
}  // namespace quire
