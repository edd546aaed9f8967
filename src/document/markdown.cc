#include "document/markdown.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/ascii.h"
#include "document/tables.h"

namespace quire {
namespace {

constexpr std::array<std::string_view, 2> kMacros = {"\\coloneqq", "\\eqqcolon"};
constexpr std::array<std::string_view, 2> kSigns = {":=", "=:"};

}  // namespace

std::string ImageName(std::string_view prefix, size_t number) {
  return std::string(prefix) + std::to_string(number) + ".jpg";
}

MarkdownWriter::MarkdownWriter(MarkdownOptions options) : options_(std::move(options)), macros_(kMacros) {}

void MarkdownWriter::Begin(BlockKind kind, size_t boxes, bool continues) {
  continues_ = continues;
  if (kind != BlockKind::kImage || options_.image_prefix.empty()) return;
  for (size_t i = 0; i < boxes; ++i)
    Write("![](" + ImageName(options_.image_prefix, images_++) + ")" + (i + 1 < boxes ? "\n" : "\n\n"));
}

void MarkdownWriter::Text(std::string_view text) {
  macros_.Push(
      text, [this](std::string_view plain) { Write(plain); }, [this](size_t macro) { Write(kSigns[macro]); });
}

void MarkdownWriter::End() {
  macros_.Flush([this](std::string_view plain) { Write(plain); });
  blanks_.clear();
  block_has_text_ = false;
}

void MarkdownWriter::Finish() {
  if (page_has_text_) out_ += '\n';
}

std::string MarkdownWriter::Take() {
  return std::exchange(out_, {});
}

void MarkdownWriter::Write(std::string_view text) {
  while (!text.empty()) {
    const size_t blanks = std::min(text.find_first_not_of(kBlanks), text.size());
    if (block_has_text_) blanks_ += text.substr(0, blanks);
    text.remove_prefix(blanks);
    if (text.empty()) return;
    WriteBlanks();
    const size_t word = std::min(text.find_first_of(kBlanks), text.size());
    out_ += text.substr(0, word);
    text.remove_prefix(word);
  }
}

void MarkdownWriter::WriteBlanks() {
  if (!block_has_text_) {
    if (page_has_text_) out_ += continues_ ? "\n" : "\n\n";
  } else if (std::ranges::count(blanks_, '\n') > 1) {
    out_ += "\n\n" + blanks_.substr(blanks_.rfind('\n') + 1);
  } else {
    out_ += blanks_;
  }
  blanks_.clear();
  block_has_text_ = page_has_text_ = true;
}

std::string WriteMarkdown(const std::vector<Block>& blocks, const MarkdownOptions& options) {
  MarkdownWriter writer(options);
  for (const Block& block : blocks) {
    writer.Begin(block.kind, block.boxes.size(), block.continues);
    writer.Text(options.pipe_tables ? PipeTables(block.content) : block.content);
    writer.End();
  }
  writer.Finish();
  return writer.Take();
}

MarkdownStream::MarkdownStream(Labels labels, MarkdownOptions options)
    : labels_(labels), writer_(std::move(options)), parser_(this) {}

std::string MarkdownStream::Push(std::string_view raw) {
  parser_.Push(raw);
  return writer_.Take();
}

std::string MarkdownStream::EndPart(bool joins) {
  parser_.Finish();
  parser_ = GroundingParser(this);
  joins_ = joins;
  return writer_.Take();
}

std::string MarkdownStream::Finish() {
  parser_.Finish();
  writer_.Finish();
  return writer_.Take();
}

void MarkdownStream::Open(const Region& head) {
  const bool label_is_text = head.marked && labels_ == Labels::kTexts;
  writer_.Begin(KindOf(head, labels_), head.boxes.size(), std::exchange(joins_, false) || label_is_text);
  if (label_is_text && !writer_.options().pipe_tables) writer_.Text(std::string(Trim(head.label)) + "\n");
}

void MarkdownStream::Content(std::string_view more) {
  if (!writer_.options().pipe_tables) writer_.Text(more);
}

void MarkdownStream::Close(Region region) {
  if (writer_.options().pipe_tables)
    writer_.Text(PipeTables(TextOf(region, labels_)));
  else if (region.content.empty() && labels_ == Labels::kKinds)
    writer_.Text(TextOf(region, labels_));  // an unknown label
  writer_.End();
}

}  // namespace quire
