#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/commands.h"
#include "apps/cli/model_choice.h"
#include "apps/cli/output.h"
#include "apps/cli/pictures.h"
#include "apps/cli/stats.h"
#include "backend/registry.h"
#include "base/log.h"
#include "document/markdown.h"
#include "document/session.h"

namespace quire::cli {
namespace {

struct ReadArguments {
  std::vector<std::string> inputs;
  std::string output;
  bool raw = false, json = false, stats = false, dry_run = false;
  std::string model, device = "auto", dtype = "auto";
  int threads = 0;
  std::string guard;
  std::optional<int> ngram_size, ngram_window;
  bool keep_loops = false, keep_blank = false;
  double timeout_s = 0;
  ReadOptions read;
  PictureOptions pictures;
};

volatile std::sig_atomic_t interrupted = 0;

// The first ^C ends the page at hand, the second the program.
void OnInterrupt(int) {
  interrupted = 1;
  std::signal(SIGINT, SIG_DFL);
}

DType ChooseDType(const std::string& name) {
  if (name == "f32" || name == "float32") return DType::kF32;
  if (name == "auto" || name == "bf16" || name == "bfloat16") return DType::kBf16;
  throw Error(ErrorKind::kUsage, "unknown dtype \"" + name + "\"", "--dtype", "one of: auto, bf16, f32");
}

// Writes one page while it is read, in the form that was asked for.
class PageWriter : public ReadListener {
 public:
  PageWriter(Output& out, const ReadArguments& arguments, Labels labels)
      : out_(out), arguments_(arguments), markdown_(labels), on_terminal_(out.is_terminal()) {}

  void OnPlan(const PageJob& job) override { parts_ = job.parts.size(); }

  void OnStage(size_t part, const StageEvent& stage) override {
    const bool vision = stage.stage == StageEvent::Stage::kVision;
    Progress(part, (vision ? "looking at view " : "taking in token ") + std::to_string(stage.done) + " of " +
                       std::to_string(stage.total));
    part_ = part;
  }

  void OnText(std::string_view raw) override {
    ++tokens_;
    if (arguments_.json) {
      Progress(part_, std::to_string(tokens_) + " tokens");
    } else {
      Emit(arguments_.raw ? std::string(raw) : markdown_.Push(raw));
    }
  }

  void OnPartEnd(bool joins) override {
    if (arguments_.json) return;
    Emit(arguments_.raw ? (joins ? "\n" : "\n\n") : markdown_.EndPart(joins));
  }

  bool Canceled() override { return interrupted != 0; }

  // The rest of the page, once its record is there.
  void Finish(const PageRecord& record) {
    progress_.Clear();
    if (arguments_.json) {
      out_.Write(ToJson(record).Dump() + "\n");
    } else if (arguments_.raw) {
      if (!record.text.empty()) Emit("\n");
    } else {
      Emit(markdown_.Finish());
      if (IsFailed(record.status))
        Emit("\n<!-- quire: " + std::string(Name(record.status)) + ": " + CommentSafe(record.reason) + " -->\n");
    }
  }

 private:
  static std::string CommentSafe(std::string text) {
    for (size_t at; (at = text.find("--")) != std::string::npos;) text.replace(at, 2, "- ");
    return text;
  }

  void Emit(const std::string& text) {
    if (text.empty()) return;
    progress_.Clear();
    out_.Write(text);
    started_ = true;
  }

  void Progress(size_t part, const std::string& text) {
    if (started_ && on_terminal_) return;  // the text itself shows how far it is
    progress_.Show((parts_ > 1 ? "part " + std::to_string(part + 1) + " of " + std::to_string(parts_) + ": " : "") +
                   text);
  }

  Output& out_;
  const ReadArguments& arguments_;
  MarkdownStream markdown_;
  ProgressLine progress_;
  bool on_terminal_;
  bool started_ = false;
  size_t parts_ = 1, part_ = 0;
  int tokens_ = 0;
};

// Where a page's text goes: one stream for all, or, when -o names a folder, a file for each picture.
class Destinations {
 public:
  explicit Destinations(const ReadArguments& arguments) : arguments_(arguments) {
    if (arguments.output.empty()) {
      single_ = std::make_unique<Output>();
    } else if (arguments.output.back() == '/' || std::filesystem::is_directory(arguments.output)) {
      std::filesystem::create_directories(arguments.output);
    } else {
      single_ = std::make_unique<Output>(arguments.output);
    }
  }

  Output& For(const std::string& source) {
    if (single_) return *single_;
    const char* suffix = arguments_.json ? ".json" : arguments_.raw ? ".txt" : ".md";
    const std::string name = source == "-" ? "stdin" : std::filesystem::path(source).filename().string();
    const std::string path = (std::filesystem::path(arguments_.output) / (name + suffix)).string();
    if (path != path_) {
      current_ = std::make_unique<Output>(path);
      path_ = path;
    }
    return *current_;
  }

 private:
  const ReadArguments& arguments_;
  std::unique_ptr<Output> single_, current_;
  std::string path_;
};

// What --dry-run says of a page, without a model.
Json DescribePlan(const Picture& picture, const PageJob& job) {
  Json plan;
  plan.Set("source", picture.source);
  plan.Set("page", picture.page);
  plan.Set("format", picture.format);
  plan.Set("width_px", picture.image.width_px);
  plan.Set("height_px", picture.image.height_px);
  plan.Set("mode", job.mode);
  plan.Set("image_tokens", job.image_tokens());
  Json& parts = plan.Set("parts", Json::Array());
  for (const PagePart& part : job.parts) {
    Json json;
    json.Set("rect", Json::Array{part.rect.left_px, part.rect.top_px, part.rect.width_px, part.rect.height_px});
    json.Set("grid", Json::Array{part.plan.columns, part.plan.rows});
    json.Set("views", part.plan.views.size());
    json.Set("image_tokens", part.plan.tokens.size());
    parts.Add(std::move(json));
  }
  Json& warnings = plan.Set("warnings", Json::Array());
  for (const std::string& warning : job.warnings) warnings.Add(warning);
  return plan;
}

int DryRun(const ReadArguments& arguments, const std::string& folder) {
  const ModelConfig config = LoadConfig(Checkpoint::Open(folder));
  const ModelCard card = ReadModelCard(folder, config.architecture);
  Output out;
  int failed = 0;
  ForEachPicture(
      arguments.inputs, arguments.pictures,
      [&](const Picture& picture) {
        const PageJob job =
            PlanJob(picture.image, config.geometry, card, arguments.read.mode, arguments.read.max_tiles);
        out.Write(DescribePlan(picture, job).Dump() + "\n");
        return true;
      },
      [&](const std::string&, int, const Error& error) {
        PrintError(error);
        ++failed;
        return true;
      });
  return failed ? 1 : 0;
}

ReadOptions MakeOptions(const ReadArguments& arguments, const PageReader& reader) {
  ReadOptions options = arguments.read;
  options.guard = arguments.guard.empty() ? reader.card().guard : NamedGuard(reader.card(), arguments.guard);
  if (arguments.ngram_size) options.guard.ngram_size = *arguments.ngram_size;
  if (arguments.ngram_window) options.guard.ngram_window = *arguments.ngram_window;
  if (arguments.ngram_size == 0 || arguments.ngram_window == 0) options.guard.ngram_size = 0;
  options.detect_loops = !arguments.keep_loops;
  options.skip_blank = !arguments.keep_blank;
  return options;
}

Labels LabelsOf(const ReadOptions& options, const ModelCard& card) {
  if (options.prompt) return Labels::kKinds;
  return options.task.empty() ? card.tasks.front().labels : FindTask(card.tasks, options.task).labels;
}

void SayStatus(const PageRecord& record) {
  const std::string page = record.source + ", page " + std::to_string(record.page) + ": ";
  for (const std::string& warning : record.warnings) PrintNote(page + "warning: " + warning);
  if (record.status == PageStatus::kOk) return;
  const std::string status = std::string(Name(record.status)) + ": ";
  PrintNote((record.reason.starts_with(record.source) ? status : page + status) + record.reason);
}

int Read(const ReadArguments& arguments) {
  const ModelChoice model = ChooseModel(arguments.model);
  if (arguments.dry_run) return DryRun(arguments, model.folder);
  SetLogSink([](LogLevel, std::string_view text) { PrintNote(text); });
  if (model.by_default)
    PrintNote(
        "no model was named: reading with the small one that comes with quire (clean Latin print).\n"
        "       For real work name a DeepSeek-OCR-2 checkpoint: quire read --model FOLDER ...");
  std::signal(SIGINT, OnInterrupt);
  std::signal(SIGPIPE, SIG_IGN);

  const BackendOptions backend{.dtype = ChooseDType(arguments.dtype), .threads = arguments.threads};
  Session session(model.folder, CreateBackend(arguments.device, backend), {.max_sequences = 4});
  const PageReader& reader = session.reader();
  ReadOptions options = MakeOptions(arguments, reader);
  reader.Check(options);
  const Labels labels = LabelsOf(options, reader.card());

  Destinations destinations(arguments);
  Stats stats;
  int pages = 0, failed = 0, unread = 0;
  auto finish = [&](const PageRecord& record, PageWriter& writer) {
    writer.Finish(record);
    SayStatus(record);
    ++pages;
    failed += IsFailed(record.status);
    unread += record.status == PageStatus::kError;
    stats.Add(record);
    return interrupted == 0;
  };
  std::string last_source;
  auto begin = [&](const std::string& source) -> Output& {
    Output& out = destinations.For(source);
    if (pages > 0 && !arguments.json && (arguments.output.empty() || last_source == source)) out.Write("\n");
    last_source = source;
    return out;
  };
  ForEachPicture(
      arguments.inputs, arguments.pictures,
      [&](const Picture& picture) {
        PageWriter writer(begin(picture.source), arguments, labels);
        if (arguments.timeout_s > 0)
          options.deadline = std::chrono::steady_clock::now() +
                             std::chrono::milliseconds(static_cast<int64_t>(1000 * arguments.timeout_s));
        PageRecord record = reader.Read(picture.image, picture.source, picture.page, options, &writer);
        record.warnings.insert(record.warnings.begin(), picture.warnings.begin(), picture.warnings.end());
        record.times_ms.insert(record.times_ms.begin(), {"decode_picture", picture.decode_ms});
        return finish(record, writer);
      },
      [&](const std::string& source, int page, const Error& error) {
        PageWriter writer(begin(source), arguments, labels);
        return finish(reader.Failed(source, page, error), writer);
      });
  if (arguments.stats) stats.Print(session);
  if (interrupted) return 130;
  if (pages > 1 && failed > 0) PrintNote(std::to_string(failed) + " of " + std::to_string(pages) + " pages failed");
  if (failed == 0) return 0;
  return unread == pages ? 3 : 1;
}

}  // namespace

void AddReadCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("read", "Read pictures of pages into Markdown");
  const auto arguments = std::make_shared<ReadArguments>();
  ReadArguments& a = *arguments;
  command->add_option("INPUT", a.inputs, "Pictures (JPEG, PNG, TIFF, WebP, HEIF, BMP, GIF, ...); - is standard input")
      ->required();
  command->add_option("-o,--output", a.output, "File for the result; a folder (or NAME/): a file for each picture");
  CLI::Option* raw = command->add_flag("--raw", a.raw, "What the model writes, with its marks");
  command->add_flag("--json", a.json, "The record of each page, one line of JSON each (docs/formats.md)")
      ->excludes(raw);
  command->add_flag("--stats", a.stats, "At the end: times of all stages beside what this machine allows");
  command->add_flag("--dry-run", a.dry_run, "Only say how pages would be cut and how many tokens they take");

  const char* group = "What to ask";
  command->add_option("--task", a.read.task, "document, plain, figure, describe, locate: those that the model has")
      ->group(group);
  command->add_option("--text", a.read.task_text, "Text for a task that takes one (locate)")->group(group);
  command->add_option("--prompt", a.read.prompt, "A prompt of your own; <image> stands for the page")->group(group);
  command->add_option("--mode", a.read.mode, "How a page is cut: strips, gundam (tiles), base, small, ...")
      ->group(group);
  command->add_option("--max-tiles", a.read.max_tiles, "Most tiles of a page (0: the model's)")
      ->group(group)
      ->check(CLI::NonNegativeNumber);

  group = "How it is written";
  command
      ->add_option("--max-tokens", a.read.max_tokens,
                   "Most tokens of a page or strip (0: what the model's context leaves)")
      ->group(group)
      ->check(CLI::NonNegativeNumber);
  command->add_option("--temperature", a.read.temperature, "0: always the likeliest token")
      ->group(group)
      ->check(CLI::Range(0.0, 100.0));
  command->add_option("--top-p", a.read.top_p, "Only the likeliest tokens up to this share")
      ->group(group)
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--top-k", a.read.top_k, "Only the k likeliest tokens (0: all)")
      ->group(group)
      ->check(CLI::NonNegativeNumber);
  command->add_option("--seed", a.read.seed, "Of the choice of tokens, with a temperature")->group(group);
  command->add_option("--guard", a.guard, "Ban on repeats: model, official-pdf, official-eval, hf, off")->group(group);
  command->add_option("--ngram-size", a.ngram_size, "Length of what may not repeat (0: guard off)")
      ->group(group)
      ->check(CLI::NonNegativeNumber);
  command->add_option("--ngram-window", a.ngram_window, "Tokens looked back on (0: guard off)")
      ->group(group)
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--keep-loops", a.keep_loops, "Do not end a page that repeats itself")->group(group);
  command->add_flag("--keep-blank", a.keep_blank, "Show pages without ink to the model too")->group(group);
  command->add_option("--timeout", a.timeout_s, "Seconds for a page (0: none)")
      ->group(group)
      ->check(CLI::NonNegativeNumber);

  group = "Model and machine";
  command
      ->add_option("--model", a.model,
                   "Folder of a DeepSeek-OCR-2 checkpoint, or the name of one that comes with quire")
      ->group(group)
      ->envname("QUIRE_MODEL");
  std::string devices = "auto";
  for (const std::string& name : BackendNames()) devices += ", " + name;
  command->add_option("--device", a.device, devices)->group(group)->envname("QUIRE_DEVICE");
  command->add_option("--dtype", a.dtype, "Of products: auto, bf16, f32")->group(group)->envname("QUIRE_DTYPE");
  command->add_option("--threads", a.threads, "0: one a processor")
      ->group(group)
      ->check(CLI::Range(0, 1024))
      ->envname("QUIRE_THREADS");
  command->add_option("--max-pixels", a.pictures.max_pixels, "Largest picture, checked before it is decoded")
      ->group(group)
      ->check(CLI::PositiveNumber);
  command->callback([=] { *exit_code = Read(*arguments); });
}

}  // namespace quire::cli
