#include "apps/cli/page_writer.h"

#include <utility>

namespace quire::cli {

PageWriter::PageWriter(Output& out, const ReadArguments& arguments, Labels labels, std::string name,
                       std::function<bool()> canceled)
    : out_(out),
      json_(arguments.json),
      raw_(arguments.raw),
      markdown_(labels),
      name_(std::move(name)),
      canceled_(std::move(canceled)) {}

void PageWriter::OnStage(size_t part, const StageEvent& stage) {
  part_ = part;
  const bool vision = stage.stage == StageEvent::Stage::kVision;
  Progress((vision ? "looked at view " : "took in token ") + std::to_string(stage.done) + " of " +
           std::to_string(stage.total));
}

void PageWriter::OnText(std::string_view raw) {
  Progress("wrote token " + std::to_string(++tokens_));
  if (!json_) Emit(raw_ ? std::string(raw) : markdown_.Push(raw));
}

void PageWriter::OnPartEnd(bool joins) {
  if (json_) return;
  Emit(raw_ ? (joins ? "\n" : "\n\n") : markdown_.EndPart(joins));
}

void PageWriter::Finish(const PageRecord& record) {
  progress_.Clear();
  if (json_) {
    out_.Write(ToJson(record).Dump() + "\n");
    return;
  }
  Emit(!raw_ ? markdown_.Finish() : started_ ? "\n" : "");
  if (IsFailed(record.status))
    Emit((started_ ? "\n<!-- quire: " : "<!-- quire: ") + std::string(Name(record.status)) + ": " +
         CommentSafe(record.reason) + " -->\n");
}

void PageWriter::Emit(const std::string& text) {
  if (text.empty()) return;
  if (out_.is_terminal()) progress_.Clear();
  out_.Write(text);
  started_ = true;
}

void PageWriter::Progress(const std::string& text) {
  if (started_ && out_.is_terminal()) return;  // the text itself shows how far it is
  const std::string part =
      parts_ > 1 ? "part " + std::to_string(part_ + 1) + " of " + std::to_string(parts_) + ", " : "";
  progress_.Show(name_ + ": " + part + text);
}

}  // namespace quire::cli
