// The cases of tests/data/document: raw text in, blocks and Markdown out. QUIRE_REWRITE=1 writes what came instead of
// comparing (then read the difference).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "base/mmap_file.h"
#include "document/markdown.h"
#include "document/page_record.h"

namespace quire {
namespace {

struct Case {
  std::string title;
  std::string options;  // words: size=WxH, labels=texts, images=PREFIX, pipe
  std::string raw, blocks, markdown;
};

// The four parts after the title, each behind its line "--- NAME"; the last reaches to the end of the file.
constexpr std::array<std::string_view, 4> kParts = {"\n--- options\n", "\n--- raw\n", "\n--- blocks\n",
                                                    "\n--- markdown\n"};

Case ReadCase(std::string_view text) {
  Case read;
  std::string* part = &read.title;
  for (auto [heading, next] : {std::pair{kParts[0], &read.options},
                               {kParts[1], &read.raw},
                               {kParts[2], &read.blocks},
                               {kParts[3], &read.markdown}}) {
    const size_t end = text.find(heading);
    if (end == text.npos) throw std::runtime_error("no part" + std::string(heading));
    *part = text.substr(0, end);
    text.remove_prefix(end + heading.size());
    part = next;
  }
  *part = text;
  return read;
}

std::string WriteCase(const Case& c) {
  std::string text = c.title;
  text.append(kParts[0]).append(c.options).append(kParts[1]).append(c.raw);
  return text.append(kParts[2]).append(c.blocks).append(kParts[3]).append(c.markdown);
}

struct Setting {
  int width_px = 1000, height_px = 500;
  Labels labels = Labels::kKinds;
  MarkdownOptions markdown;
};

Setting ReadSetting(const std::string& options) {
  Setting setting;
  std::istringstream words(options);
  for (std::string word; words >> word;) {
    const std::string value = word.substr(std::min(word.find('=') + 1, word.size()));
    if (word.starts_with("size=")) {
      setting.width_px = std::stoi(value);
      setting.height_px = std::stoi(value.substr(value.find('x') + 1));
    } else if (word == "labels=texts") {
      setting.labels = Labels::kTexts;
    } else if (word.starts_with("images=")) {
      setting.markdown.image_prefix = value;
    } else if (word == "pipe") {
      setting.markdown.pipe_tables = true;
    } else {
      ADD_FAILURE() << "unknown option " << word;
    }
  }
  return setting;
}

std::vector<std::string> CasePaths() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(QUIRE_SOURCE_DIR "/tests/data/document"))
    paths.push_back(entry.path().string());
  std::ranges::sort(paths);
  return paths;
}

class DocumentCase : public testing::TestWithParam<std::string> {};

TEST_P(DocumentCase, GivesItsBlocksAndMarkdown) {
  const std::string path = GetParam();
  Case wanted = ReadCase(ReadFile(path));
  const Setting setting = ReadSetting(wanted.options);

  std::vector<Block> blocks;
  AppendBlocks(ParseGrounding(wanted.raw), Frame::WholePage(setting.width_px, setting.height_px), setting.labels, false,
               &blocks);
  Json::Array json;
  for (const Block& block : blocks) json.push_back(ToJson(block));
  const std::string found_blocks = Json(json).Dump(1);
  const std::string found_markdown = WriteMarkdown(blocks, setting.markdown);

  if (std::getenv("QUIRE_REWRITE")) {
    wanted.blocks = found_blocks;
    wanted.markdown = found_markdown;
    std::ofstream(path) << WriteCase(wanted);
    return;
  }
  EXPECT_EQ(found_blocks, wanted.blocks);
  EXPECT_EQ(found_markdown, wanted.markdown);
}

TEST_P(DocumentCase, StreamsTheSameMarkdownInChunksOfAnySize) {
  const Case given = ReadCase(ReadFile(GetParam()));
  const Setting setting = ReadSetting(given.options);
  std::vector<Block> blocks;
  AppendBlocks(ParseGrounding(given.raw), Frame::WholePage(1000, 1000), setting.labels, false, &blocks);
  const std::string whole = WriteMarkdown(blocks, setting.markdown);
  for (size_t bytes : {1, 2, 3, 5, 8, 13, 10000}) {
    MarkdownStream stream(setting.labels, setting.markdown);
    std::string streamed;
    for (size_t at = 0; at < given.raw.size(); at += bytes) streamed += stream.Push(given.raw.substr(at, bytes));
    streamed += stream.Finish();
    EXPECT_EQ(streamed, whole) << "in chunks of " << bytes;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, DocumentCase, testing::ValuesIn(CasePaths()),
                         [](const auto& test) { return std::filesystem::path(test.param).stem().string(); });

}  // namespace
}  // namespace quire
