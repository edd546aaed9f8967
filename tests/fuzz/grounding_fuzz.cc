// Any text, in any chunks: the parser never throws, its regions cover the text, chunks change nothing, and the streamed
// Markdown is the written one.
#include <cstdint>
#include <cstdlib>

#include "document/markdown.h"
#include "document/tables.h"

namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quire;
  if (size < 2) return 0;
  const Labels labels = data[0] & 1 ? Labels::kTexts : Labels::kKinds;
  const MarkdownOptions options{.image_prefix = data[0] & 2 ? "images/" : "", .pipe_tables = (data[0] & 4) != 0};
  const size_t chunk = 1 + data[1] % 32;
  const std::string raw(reinterpret_cast<const char*>(data) + 2, size - 2);

  const std::vector<Region> regions = ParseGrounding(raw);
  size_t covered = 0;
  for (const Region& region : regions) {
    Require(region.begin == covered && region.end > region.begin);
    covered = region.end;
    Require(raw.substr(region.begin, region.end - region.begin).find(region.content) != std::string::npos);
    for (const Box& box : region.boxes)
      Require(0 <= box.x1 && box.x1 <= box.x2 && box.x2 <= 999 && 0 <= box.y1 && box.y1 <= box.y2 && box.y2 <= 999);
  }
  Require(covered == (regions.empty() ? 0 : raw.size()));

  std::vector<Block> blocks;
  AppendBlocks(regions, Frame::WholePage(1 + data[0], 1 + data[1]), labels, false, &blocks);
  MarkdownStream stream(labels, options);
  std::string streamed;
  for (size_t at = 0; at < raw.size(); at += chunk) streamed += stream.Push(raw.substr(at, chunk));
  streamed += stream.Finish();
  Require(streamed == WriteMarkdown(blocks, options));
  return 0;
}
