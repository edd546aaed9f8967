// One page's result, written while the page is read.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "apps/cli/output.h"
#include "apps/cli/read_arguments.h"
#include "document/markdown.h"
#include "document/page_reader.h"

namespace quire::cli {

// Writes a page in the form that was asked for, and shows how far it is.
class PageWriter : public ReadListener {
 public:
  // name: the page's, for the progress line. canceled: asked at every event.
  PageWriter(Output& out, const ReadArguments& arguments, Labels labels, std::string name,
             std::function<bool()> canceled);

  void OnPlan(const PageJob& job) override { parts_ = job.parts.size(); }
  void OnStage(size_t part, const StageEvent& stage) override;
  void OnText(std::string_view raw) override;
  void OnPartEnd(bool joins) override;
  bool Canceled() override { return canceled_(); }

  // The rest of the page, once its record is there; ends the progress line.
  void Finish(const PageRecord& record);

 private:
  void Emit(const std::string& text);
  void Progress(const std::string& text);

  Output& out_;
  bool json_, raw_;
  MarkdownStream markdown_;
  std::string name_;
  std::function<bool()> canceled_;
  ProgressLine progress_;
  bool started_ = false;  // something of the page is written
  size_t parts_ = 1, part_ = 0;
  int tokens_ = 0;
};

}  // namespace quire::cli
