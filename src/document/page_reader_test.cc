// A page in strips over the scripted engine: limits and stop strings are of the page.
#include "document/page_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tests/support/scripted_engine.h"

namespace quire {
namespace {

constexpr int kStripTokens = 50;

// A4 at 144 dpi with lines of something like print, for some strips.
Image PrintedPage() {
  constexpr int kLines = 40, kLetters = 80, kEm = 22, kPitch = 31;
  Image page(1191, 1684, 255);
  for (int line = 0; line < kLines; ++line)
    for (int letter = 0; letter < kLetters; ++letter)
      for (int y = 0; y < kEm / 2; ++y)
        if (letter % 7 != 6)
          std::fill_n(page.row(140 + line * kPitch + y) + (130 + letter * kEm / 2) * 3, kEm / 3 * 3, uint8_t{0});
  return page;
}

struct Tokens : ReadListener {
  void OnToken(size_t /*part*/, const TokenEvent& token) override { ids.push_back(token.id); }
  void OnText(std::string_view raw) override { text += raw; }
  void OnPartEnd(bool joins) override { text += joins ? "\n" : "\n\n"; }
  std::vector<int32_t> ids;
  std::string text;
};

class PageReaderTest : public testing::Test {
 protected:
  // max_sequences: 1: strips are read one after another; 4: at once.
  explicit PageReaderTest(int max_sequences = 4)
      : ids_(Babble(kStripTokens)),
        scripted_({ScriptOf(ids_)}, {.max_sequences = max_sequences}),
        reader_(scripted_.engine, TinyTokenizer(), ReadModelCard(kRoot + "/models/tiny", Architecture::kOcr2), "tiny") {
  }
  PageRecord Read(int max_tokens, std::vector<std::string> stop = {}) {
    ReadOptions options = reader_.DefaultOptions();
    options.max_tokens = max_tokens;
    options.stop = std::move(stop);
    seen_ = {};
    PageRecord record = reader_.Read(page_, "page", 1, options, &seen_);
    EXPECT_EQ(seen_.text, record.text);
    return record;
  }

  const Image page_ = PrintedPage();
  const std::vector<int32_t> ids_;
  ScriptedEngine scripted_;
  PageReader reader_;
  Tokens seen_;
};

struct OneAfterAnother : PageReaderTest {
  OneAfterAnother() : PageReaderTest(1) {}
};

void ExpectPrefixes(const std::function<PageRecord(int)>& read, const Tokens& seen) {
  const PageRecord whole = read(0);
  const Tokens all = seen;
  const auto strips = static_cast<int>(whole.strips.size());
  ASSERT_GE(strips, 3);
  ASSERT_EQ(whole.output_tokens, strips * kStripTokens);
  EXPECT_FALSE(whole.is_cut);
  for (const int limit : {1, 25, kStripTokens - 1, kStripTokens, kStripTokens + 1, 2 * kStripTokens, 125,
                          whole.output_tokens - 1, whole.output_tokens, whole.output_tokens + 1}) {
    const PageRecord cut = read(limit);
    const int tokens = std::min(limit, whole.output_tokens);
    EXPECT_EQ(cut.output_tokens, tokens) << limit;
    EXPECT_EQ(seen.ids, std::vector(all.ids.begin(), all.ids.begin() + tokens)) << limit;
    EXPECT_TRUE(whole.text.starts_with(cut.text)) << limit;
    EXPECT_EQ(cut.is_cut, limit <= whole.output_tokens) << limit;
    EXPECT_EQ(cut.status, cut.is_cut ? PageStatus::kLength : PageStatus::kOk) << limit;
    if (cut.is_cut) EXPECT_EQ(cut.reason, "the text was cut at the limit of " + std::to_string(limit) + " tokens");
    // Only of strips that were read.
    const int read_strips = (tokens + kStripTokens - 1) / kStripTokens;
    EXPECT_EQ(static_cast<int>(cut.strips.size()), read_strips) << limit;
    EXPECT_EQ(cut.prompt_tokens, whole.prompt_tokens / strips * read_strips) << limit;
    EXPECT_EQ(cut.image_tokens, whole.image_tokens / strips * read_strips) << limit;
  }
}

TEST_F(PageReaderTest, MaxTokensIsOfThePage) {
  ExpectPrefixes([&](int limit) { return Read(limit); }, seen_);
}

TEST_F(OneAfterAnother, MaxTokensIsOfThePage) {
  ExpectPrefixes([&](int limit) { return Read(limit); }, seen_);
}

TEST_F(PageReaderTest, AStopStringEndsPageTokensAndCounts) {
  const PageRecord whole = Read(0);
  const std::string stop = TinyTokenizer().Decode(std::span(ids_).subspan(10, 3));
  const PageRecord cut = Read(0, {stop});
  EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(stop)));
  EXPECT_EQ(cut.status, PageStatus::kOk);
  EXPECT_FALSE(cut.is_cut);
  EXPECT_EQ(seen_.ids, std::vector(ids_.begin(), ids_.begin() + 10));
  EXPECT_EQ(cut.strips.size(), 1u);
  EXPECT_EQ(cut.image_tokens, whole.image_tokens / static_cast<int>(whole.strips.size()));
}

}  // namespace
}  // namespace quire
