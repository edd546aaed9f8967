#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/ascii.h"
#include "base/check.h"
#include "base/content_hash.h"
#include "base/error.h"
#include "base/json.h"
#include "base/mmap_file.h"
#include "base/thread_pool.h"
#include "base/utf8.h"

namespace quire {
namespace {

TEST(Error, SaysWhereWhatAndHint) {
  const Error e(ErrorKind::kBadModel, "wanted 4 rows, found 3", "model.safetensors", "download it again");
  EXPECT_STREQ(e.what(), "model.safetensors: wanted 4 rows, found 3 (download it again)");
  EXPECT_STREQ(e.Within("page 2").what(), "page 2: model.safetensors: wanted 4 rows, found 3 (download it again)");
  for (int i = 0; i <= static_cast<int>(ErrorKind::kInternal); ++i)
    EXPECT_EQ(Info(static_cast<ErrorKind>(i)).kind, static_cast<ErrorKind>(i));
}

TEST(Check, ShowsBothValues) {
  try {
    QUIRE_CHECK_EQ(1 + 1, 3);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInternal);
    EXPECT_NE(e.message().find("2 against 3"), std::string::npos) << e.message();
  }
}

TEST(Utf8, MaximalPrefixesAreReplaced) {
  EXPECT_TRUE(IsUtf8("a\u00e9\u4e2d\U0001F600"));
  // Unicode 15, table 3-8: each maximal valid prefix becomes one U+FFFD.
  EXPECT_EQ(RepairUtf8("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a\uFFFD\uFFFD\uFFFD"
            "b\uFFFD"
            "c\uFFFD\uFFFD"
            "d");
  EXPECT_EQ(RepairUtf8("\xC0\xAF\xE0\x80\xBF\xED\xA0\x80\xF4\x90"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
}

TEST(Utf8, CountsCharacters) {
  EXPECT_EQ(CountUtf8(""), 0u);
  EXPECT_EQ(CountUtf8("a\u00e9\u4e2d\U0001F600"), 4u);
}

TEST(Ascii, LeavesOtherBytesAlone) {
  EXPECT_EQ(Lower("AZ[@\u00c9\u0130"), "az[@\u00c9\u0130");
  EXPECT_EQ(Trim(" \t\r\na b\u00a0\n"), "a b\u00a0");
  EXPECT_EQ(Trim(" \n"), "");
  EXPECT_TRUE(IsBlank(" \r\t\n"));
  EXPECT_FALSE(IsBlank("\u00a0"));
}

TEST(Utf8, IncompleteTail) {
  const std::string text = "a\u00e9\u4e2d\U0001F600";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const std::string_view head = std::string_view(text).substr(0, cut);
    EXPECT_TRUE(IsUtf8(head.substr(0, cut - IncompleteUtf8Tail(head)))) << cut;
    EXPECT_LT(IncompleteUtf8Tail(head), 4u);
  }
  EXPECT_EQ(IncompleteUtf8Tail("\xFF"), 0u);
  EXPECT_EQ(IncompleteUtf8Tail("\xE0\x80"), 0u) << "an overlong form never becomes a character";
}

TEST(JsonTest, RoundTrip) {
  const std::string text = R"({"a":[1,-2,3.5,1e3,true,false,null],"b":{"c":"\u00e9\ud83d\ude00\n\"\\"},"d":[],"e":{}})";
  const Json value = Json::Parse(text, "test");
  EXPECT_EQ(value.At("a").as_array()[2].as_double(), 3.5);
  EXPECT_EQ(value.At("b").At("c").as_string(), "\u00e9\U0001F600\n\"\\");
  EXPECT_EQ(Json::Parse(value.Dump(), "again"), value);
  EXPECT_EQ(Json::Parse(value.Dump(2), "again"), value);
  EXPECT_EQ(Json::Parse("12345678901234567890", "t").as_double(), 12345678901234567890.0);
  EXPECT_EQ(Json::Parse("9007199254740993", "t").as_int(), 9007199254740993);
}

TEST(JsonTest, RefusesWhatIsNotJson) {
  for (const char* bad : {"", "{", "[1,]", "{\"a\":1,}", "01", "1.", "-", "+1", "nul", "\"\\x\"", "\"\\ud800\"",
                          "\"a\nb\"", "[1] 2", "{a:1}", "\"\xff\"", "1e999", "\"abc", "{\"a\" 1}", "[1 2]"})
    EXPECT_THROW(Json::Parse(bad, "t"), Error) << bad;
  EXPECT_THROW(Json::Parse(std::string(100000, '['), "t"), Error);
  EXPECT_NO_THROW(Json::Parse(std::string(60, '[') + std::string(60, ']'), "t"));
}

TEST(JsonTest, TypesAreNamed) {
  try {
    Json::Parse("[1]", "t").as_string();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.message(), "wanted a string, found an array");
  }
}

TEST(MmapFileTest, ReadsAndRefuses) {
  const auto path = (std::filesystem::temp_directory_path() / "quire_base_test.bin").string();
  std::ofstream(path) << "hello";
  const MmapFile file(path);
  EXPECT_EQ(std::string(file.bytes().begin(), file.bytes().end()), "hello");
  EXPECT_EQ(ReadFile(path), "hello");
  EXPECT_THROW(ReadFile(path, 4), Error);
  EXPECT_THROW(MmapFile("/no/such/file"), Error);
  EXPECT_THROW(MmapFile("/tmp"), Error);
  std::filesystem::remove(path);
}

// Numbers of OpenSSL 3's SIPHASH with the key and inputs of the paper's appendix: bytes 0, 1, 2 ...
TEST(ContentHashTest, IsSipHash) {
  std::vector<std::byte> bytes(64);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  const struct {
    size_t length;
    uint64_t low, high;
  } kKnown[] = {
      {0, 0xe6a825ba047f81a3, 0x930255c71472f66d},  {1, 0x44af996bd8c187da, 0x45fc229b11597634},
      {7, 0x53c1dbd8beebf1a1, 0x3982f01fa64ab8c0},  {8, 0x61f55862baa9623b, 0xb49714f364e2830f},
      {15, 0x11a8b03399e99354, 0xd9c3cf970fec087e}, {63, 0x4a83502f77d15051, 0x7cbd3f979a063e50},
      {64, 0x3fcdd4c07d07af1e, 0x4ba75836384dad8c},
  };
  for (const auto& known : kKnown)
    EXPECT_EQ(SipHash(std::span(bytes).first(known.length), {0x0706050403020100, 0x0f0e0d0c0b0a0908}),
              (Hash128{known.low, known.high}))
        << known.length;
  EXPECT_EQ(ContentHash(bytes), ContentHash(bytes));
  EXPECT_NE(ContentHash(bytes), ContentHash(std::span(bytes).first(63)));
}

TEST(ThreadPoolTest, DoesEachOnceAndNests) {
  ThreadPool pool(4);
  for (int round = 0; round < 200; ++round) {
    std::vector<int> hits(round, 0);
    pool.For(round, [&](int64_t i) { pool.For(3, [&](int64_t) { ++hits[i]; }); });
    EXPECT_EQ(std::accumulate(hits.begin(), hits.end(), 0), 3 * round);
  }
}

TEST(ThreadPoolTest, ThrowsTheFirstError) {
  ThreadPool pool(3);
  std::atomic<int> done{0};
  EXPECT_THROW(pool.For(100,
                        [&](int64_t i) {
                          ++done;
                          if (i == 7) throw Error(ErrorKind::kIo, "seven");
                        }),
               Error);
  EXPECT_EQ(done, 100);
}

}  // namespace
}  // namespace quire
