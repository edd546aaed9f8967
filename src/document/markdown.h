// Markdown of a page, from its blocks or while it is still being read; both give the same text.
//
// Blocks are separated by one blank line, blank lines inside a block are joined to one, white space at the ends of a
// block is dropped. Headings, lists, HTML tables and formulas stay as the model wrote them; \coloneqq and \eqqcolon
// become
// := and =: as in the published scripts. A picture of the page is linked when there is a file to link to, and otherwise
// leaves nothing: its caption is a block of its own. The text ends in one line break; a page without text is empty.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "document/blocks.h"
#include "document/grounding.h"
#include "document/literal_scanner.h"

namespace quire {

struct MarkdownOptions {
  // Image boxes are linked by ImageName with this prefix ("images/3_": images/3_0.jpg, ...). Empty: not linked.
  std::string image_prefix;
  // Tables that can be pipe tables become them. A stream then gives each block when it is whole.
  bool pipe_tables = false;
};

// File of the page's image box number (from 0, over all boxes of all image blocks), as Markdown links to it.
std::string ImageName(std::string_view prefix, size_t number);

// Writes the blocks of one page in order: Begin, any number of Texts, End; then Finish.
class MarkdownWriter {
 public:
  explicit MarkdownWriter(MarkdownOptions options);

  const MarkdownOptions& options() const { return options_; }
  void Begin(BlockKind kind, size_t boxes, bool continues);
  void Text(std::string_view text);
  void End();
  void Finish();
  std::string Take();  // what was written since the last call

 private:
  void Write(std::string_view text);
  void WriteBlanks();

  MarkdownOptions options_;
  LiteralScanner macros_;
  std::string out_;
  std::string blanks_;  // white space of the block that may be its end
  bool block_has_text_ = false;
  bool page_has_text_ = false;
  bool continues_ = false;
  size_t images_ = 0;
};

std::string WriteMarkdown(const std::vector<Block>& blocks, const MarkdownOptions& options = {});

// The same from the raw text as it comes: gives out what surely is no part of a mark or of white space to be dropped.
class MarkdownStream : private RegionSink {
 public:
  explicit MarkdownStream(Labels labels, MarkdownOptions options = {});
  MarkdownStream(const MarkdownStream&) = delete;
  MarkdownStream& operator=(const MarkdownStream&) = delete;

  std::string Push(std::string_view raw);
  // A raw text of the page ends (a strip's); joins: the next one's first block continues this one's last.
  std::string EndPart(bool joins);
  // The page ends.
  std::string Finish();

 private:
  void Open(const Region& head) override;
  void Content(std::string_view more) override;
  void Close(Region region) override;

  Labels labels_;
  MarkdownWriter writer_;
  GroundingParser parser_;
  bool joins_ = false;
};

}  // namespace quire
