#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <utility>

#include "apps/cli/commands.h"
#include "apps/cli/destinations.h"
#include "apps/cli/model_choice.h"
#include "apps/cli/output.h"
#include "apps/cli/page_writer.h"
#include "apps/cli/pictures.h"
#include "apps/cli/read_arguments.h"
#include "apps/cli/stats.h"
#include "base/log.h"
#include "document/session.h"
#include "image/paper.h"

namespace quire::cli {
namespace {

constexpr int kInterruptedCode = 128 + SIGINT;
volatile std::sig_atomic_t interrupted = 0;

// The first ^C ends the page at hand, the second the program.
void OnInterrupt(int) {
  interrupted = 1;
  std::signal(SIGINT, SIG_DFL);
  constexpr char kText[] = "\nquire: stopping after the step at hand; ^C once more stops at once\n";
  if (isatty(STDERR_FILENO) == 1 && write(STDERR_FILENO, kText, sizeof kText - 1) < 0) {
  }  // nothing to be done
}

bool Interrupted() {
  return interrupted != 0;
}

// How the pages ended.
class Tally {
 public:
  void Add(PageStatus status) {
    ++pages_;
    failed_ += IsFailed(status);
    unread_ += status == PageStatus::kError;
  }
  void Print() const {
    if (pages_ > 1 && failed_ > 0)
      PrintNote(std::to_string(failed_) + " of " + std::to_string(pages_) + " pages failed");
  }
  int exit_code() const { return failed_ == 0 ? 0 : unread_ == pages_ ? 3 : 1; }

 private:
  int pages_ = 0, failed_ = 0, unread_ = 0;
};

void SayStatus(const PageRecord& record, bool as_text) {
  const bool no_page = record.width_px == 0 && record.page == 1;  // perhaps not even a file
  const std::string name = no_page ? record.source : PageName(record.source, record.page);
  for (const std::string& warning : record.warnings) PrintNote(name + ": warning: " + warning);
  if (record.status != PageStatus::kOk) {
    PrintNote(name + ": " + std::string(Name(record.status)) + ": " + record.reason);
  } else if (as_text && std::ranges::all_of(record.blocks, [](const Block& block) { return block.content.empty(); })) {
    PrintNote(name + ": no text, only pictures; --json says where they are");
  }
}

// What --dry-run says of a page, without the model's weights.
Json DescribePlan(const Picture& picture, const PageJob& job, const Prompt& prompt) {
  Json plan;
  plan.Set("source", picture.source);
  plan.Set("page", picture.page);
  plan.Set("format", picture.format);
  plan.Set("width_px", picture.image.width_px);
  plan.Set("height_px", picture.image.height_px);
  plan.Set("blank", IsBlank(picture.image));
  plan.Set("task", prompt.task);
  plan.Set("prompt", prompt.text);
  plan.Set("mode", job.mode);
  plan.Set("image_tokens", job.image_tokens());
  plan.Set("prompt_tokens", job.image_tokens() + job.parts.size() * (prompt.before.size() + prompt.after.size()));
  Json& parts = plan.Set("parts", Json::Array());
  for (const PagePart& part : job.parts) {
    Json json;
    json.Set("x", part.rect.left_px);
    json.Set("y", part.rect.top_px);
    json.Set("width", part.rect.width_px);
    json.Set("height", part.rect.height_px);
    json.Set("columns", part.plan.columns);
    json.Set("rows", part.plan.rows);
    json.Set("views", part.plan.views.size());
    json.Set("image_tokens", part.plan.tokens.size());
    parts.Add(std::move(json));
  }
  Json& warnings = plan.Set("warnings", Json::Array());
  for (const auto& texts : {picture.warnings, job.warnings})
    for (const std::string& text : texts) warnings.Add(text);
  return plan;
}

int DryRun(const ReadArguments& arguments, const std::string& folder) {
  const ModelConfig config = LoadConfig(Checkpoint::Open(folder));
  const ModelFiles files = LoadModelFiles(folder, config);
  const Prompt prompt = MakePrompt(arguments.read, files.card, files.tokenizer, config.lm.bos_id);
  const auto plan = [&](const Image& page) {
    return PlanJob(page, config.geometry, files.card, arguments.read.mode, arguments.read.max_tiles);
  };
  plan(Image(64, 64, 255));  // a mode that the model lacks is not each page's fault
  Output out;
  Tally tally;
  ForEachPicture(
      arguments.inputs, arguments.pictures,
      [&](const Picture& picture) {
        out.Write(DescribePlan(picture, plan(picture.image), prompt).Dump() + "\n");
        tally.Add(PageStatus::kOk);
        return true;
      },
      [&](const Picture& picture, const Error& error) {
        const PageRecord record = FailedRecord(picture.source, picture.page, error);
        Json line;
        line.Set("source", record.source);
        line.Set("page", record.page);
        line.Set("error", ToJson(*record.error));
        out.Write(line.Dump() + "\n");
        SayStatus(record, false);
        tally.Add(record.status);
        return true;
      });
  tally.Print();
  return tally.exit_code();
}

ReadOptions MakeOptions(const ReadArguments& arguments, const ModelCard& card) {
  ReadOptions options = arguments.read;
  options.guard = NamedGuard(card, arguments.guard);
  if (arguments.ngram_size) options.guard.ngram_size = *arguments.ngram_size;
  if (arguments.ngram_window) options.guard.ngram_window = *arguments.ngram_window;
  if (arguments.ngram_size == 0 || arguments.ngram_window == 0) options.guard.ngram_size = 0;
  options.detect_loops = !arguments.keep_loops;
  options.skip_blank = !arguments.keep_blank;
  return options;
}

int Read(ReadArguments& arguments) {
  CheckInputs(arguments.inputs);
  const ModelChoice model = ChooseModel(arguments.machine.model);
  if (arguments.dry_run) return DryRun(arguments, model.folder);
  SetLogSink([](LogLevel, std::string_view text) { PrintNote(text); });
  if (model.by_default)
    PrintNote(
        "no model was named: reading with the small one that comes with quire (clean Latin print).\n"
        "       For real work name a DeepSeek-OCR-2 checkpoint: quire read --model FOLDER ...");

  Session session(model.folder, MakeBackend(arguments.machine), {.max_sequences = 4});
  const PageReader& reader = session.reader();
  ReadOptions options = MakeOptions(arguments, reader.card());
  reader.Check(options);
  const Labels labels = reader.MakePrompt(options).labels;

  Destinations destinations(arguments);
  Stats stats(options.max_tiles);
  Tally tally;
  const auto read = [&](const Picture& picture, const Error* error) {
    PageWriter writer(destinations.Begin(picture.source, picture.page), arguments, labels,
                      PageName(picture.source, picture.page), Interrupted);
    if (arguments.timeout_s > 0)
      options.deadline = std::chrono::steady_clock::now() +
                         std::chrono::milliseconds(static_cast<int64_t>(1000 * arguments.timeout_s));
    PageRecord record = error ? reader.Failed(picture.source, picture.page, *error)
                              : reader.Read(picture.image, picture.source, picture.page, options, &writer);
    record.warnings.insert(record.warnings.begin(), picture.warnings.begin(), picture.warnings.end());
    record.times_ms.insert(record.times_ms.begin(), {"decode_picture", picture.decode_ms});
    writer.Finish(record);
    SayStatus(record, !arguments.json && !arguments.raw);
    tally.Add(record.status);
    stats.Add(record);
    return !Interrupted();
  };
  std::signal(SIGINT, OnInterrupt);
  arguments.pictures.canceled = Interrupted;
  ForEachPicture(
      arguments.inputs, arguments.pictures, [&](const Picture& picture) { return read(picture, nullptr); },
      [&](const Picture& picture, const Error& error) { return read(picture, &error); });
  if (Interrupted()) return kInterruptedCode;
  if (arguments.stats) stats.Print(session);
  tally.Print();
  return tally.exit_code();
}

}  // namespace

void AddReadCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("read", "Read pictures of pages into Markdown or JSON")->group("Commands");
  const auto arguments = std::make_shared<ReadArguments>();
  AddReadOptions(command, arguments.get());
  command->callback([=] { *exit_code = Read(*arguments); });
}

}  // namespace quire::cli
