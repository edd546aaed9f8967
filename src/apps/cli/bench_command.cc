#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>
#include <optional>

#include "apps/cli/bench_run.h"
#include "apps/cli/commands.h"
#include "apps/cli/model_choice.h"
#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "base/ascii.h"
#include "base/error.h"
#include "base/json.h"

namespace quire::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kScenarioRounds = 3;

struct BenchArguments {
  MachineArguments machine;
  std::vector<std::string> images;
  std::string concurrent = "1,4,16";
  int warmup = 1, rounds = 4, max_tokens = 0;
  int timeout_s = 600;
  bool scenarios = false, same_picture = false;
  std::optional<std::string> url;
  std::string mode, key, model_name, output, plot;
};

std::vector<int> ParseLevels(const std::string& text) {
  std::vector<int> levels;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    int level = 0;
    const auto [stop, error] = std::from_chars(at, end, level);
    if (error != std::errc() || level < 1 || level > 10'000 || (stop != end && *stop != ','))
      throw Error(ErrorKind::kUsage, "wanted numbers of requests at once as 1,8,16, found \"" + text + "\"",
                  "--concurrent");
    levels.push_back(level);
    if (stop == end) return levels;
    at = stop + 1;
  }
}

// samples/ beside the program, above it, or in share/quire.
fs::path FindSample(const std::string& name) {
  for (const char* place : {"samples", "../samples", "../share/quire/samples"}) {
    fs::path path = fs::path(ProgramFolder()) / place / name;
    std::error_code error;
    if (fs::exists(path, error)) return path;
  }
  throw Error(ErrorKind::kNotFound, "the sample pictures that come with quire are not there", name,
              "name pictures of your own: --image FILE");
}

// Files, and the pictures in folders.
std::vector<BenchOriginal> LoadPictures(BenchPictures& pictures, const std::vector<std::string>& images) {
  std::vector<BenchOriginal> originals;
  for (const std::string& image : images) {
    std::error_code error;
    if (!fs::is_directory(image, error)) {
      originals.push_back(pictures.Load(image));
      continue;
    }
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(image)) {
      const std::string extension = Lower(entry.path().extension().string());
      constexpr std::string_view kKnown[] = {".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp", ".gif"};
      if (entry.is_regular_file() && std::ranges::count(kKnown, extension)) files.push_back(entry.path());
    }
    if (files.empty()) throw Error(ErrorKind::kNotFound, "there is no picture in the folder", image);
    std::ranges::sort(files);
    for (const fs::path& file : files) originals.push_back(pictures.Load(file.string()));
  }
  return originals;
}

// What is asked, with a picture for each question.
class Questions {
 public:
  explicit Questions(const BenchArguments& arguments) : arguments_(arguments), pictures_(arguments.same_picture) {
    originals_ = LoadPictures(
        pictures_, arguments.images.empty() ? std::vector{FindSample("paragraph.png").string()} : arguments.images);
  }
  BenchQuestion Ask(const BenchOriginal& original, const std::string& task = "") {
    return {.picture = pictures_.Make(original),
            .task = task,
            .mode = arguments_.mode,
            .max_tokens = arguments_.max_tokens};
  }
  // The pictures in turn.
  std::vector<BenchQuestion> Make(int count) {
    std::vector<BenchQuestion> questions;
    while (static_cast<int>(questions.size()) < count)
      questions.push_back(Ask(originals_[next_++ % originals_.size()]));
    return questions;
  }
  BenchPictures& pictures() { return pictures_; }

 private:
  const BenchArguments& arguments_;
  BenchPictures pictures_;
  std::vector<BenchOriginal> originals_;
  size_t next_ = 0;
};

// A short line, a few sentences, a page, a page described, and digits, which no language model guesses.
std::vector<ScenarioResult> RunScenarios(BenchTarget& target, Questions& questions) {
  constexpr struct {
    const char *name, *file, *task;
  } kScenarios[] = {{"short line", "line.png", ""},
                    {"sentences", "paragraph.png", ""},
                    {"page", "a4-11pt.png", ""},
                    {"page, described", "a4-11pt.png", "describe"},
                    {"digits", "digits.png", ""}};
  std::vector<ScenarioResult> results;
  for (const auto& [name, file, task] : kScenarios) {
    if (*task && !target.HasTask(task)) continue;
    const BenchOriginal original = questions.pictures().Load(FindSample(file).string());
    std::vector<BenchAnswer> answers;
    for (int i = 0; i < kScenarioRounds; ++i) answers.push_back(target.Ask(questions.Ask(original, task)));
    std::ranges::sort(answers, {}, &BenchAnswer::total_ms);
    results.push_back({name, answers[answers.size() / 2]});
  }
  return results;
}

std::unique_ptr<BenchTarget> MakeTarget(const BenchArguments& arguments, int most_at_once) {
  if (!arguments.url) return MakeLocalTarget(arguments.machine, most_at_once);
  return MakeUrlTarget(
      {.url = *arguments.url, .key = arguments.key, .model = arguments.model_name, .silence_s = arguments.timeout_s});
}

int Bench(const BenchArguments& arguments) {
  const std::vector<int> levels = ParseLevels(arguments.concurrent);
  Questions questions(arguments);
  const std::unique_ptr<BenchTarget> target = MakeTarget(arguments, std::ranges::max(levels));
  const std::vector<BenchQuestion> first = questions.Make(1);
  target->Check(first[0]);

  BenchReport report{.target = target->Describe(),
                     .same_pictures = questions.pictures().same(),
                     .start_up = target->start_up(),
                     .cold = target->Ask(first[0])};
  if (!report.cold.error.empty())
    throw Error(ErrorKind::kIo, "the first request failed: " + report.cold.error, report.target);
  ProgressLine progress;
  for (const int level : levels) {
    progress.Show(std::to_string(level) + " at once ...");
    if (arguments.warmup > 0) RunLevel(*target, questions.Make(level * arguments.warmup), level);
    report.levels.push_back(RunLevel(*target, questions.Make(level * arguments.rounds), level));
  }
  if (arguments.scenarios) report.scenarios = RunScenarios(*target, questions);
  progress.Clear();

  if (!arguments.plot.empty()) Output(arguments.plot).Write(ToSvg(report));
  if (!arguments.output.empty()) {
    const std::string json = ToJson(report).Dump(2) + "\n";
    if (arguments.output == "-") {
      Output().Write(json);
    } else {
      Output(arguments.output).Write(json);
    }
  }
  if (arguments.output != "-") Output().Write(ToTable(report));
  return std::ranges::all_of(report.levels, [](const LevelResult& level) { return level.failed == 0; }) ? 0 : 1;
}

}  // namespace

void AddBenchCommand(CLI::App& app, int* exit_code) {
  CLI::App* command =
      app.add_subcommand("bench", "Measure this machine, or any server that speaks OpenAI's API")->group("Commands");
  const auto arguments = std::make_shared<BenchArguments>();
  BenchArguments& a = *arguments;
  Group what(command, "What is asked");
  what.Add("--image", a.images, "FILE...", "Pictures, or folders of them, in turn (default: a sample)");
  what.Add("--concurrent", a.concurrent, "N,N,...", "Requests at once, a level each (default 1,4,16)");
  what.Add("--warmup", a.warmup, "N", "Rounds before each level that are not counted (default 1)")->check(AtLeast(0));
  what.Add("--rounds", a.rounds, "N", "Requests of a level for each of those at once (default 4)")->check(AtLeast(1));
  what.Add("--max-tokens", a.max_tokens, "N", "Of an answer (default 0: what the server allows)")->check(AtLeast(0));
  what.Add("--mode", a.mode, "NAME", "As for quire read (default: the model's)");
  what.AddFlag(
      "--same-picture", a.same_picture,
      "Send pictures as they are, again and again: the server need see each but once. Else every request has a "
      "picture never seen, the same for the eye");
  what.AddFlag("--scenarios", a.scenarios, "Also a line, sentences, a page, its description, and digits, each alone");
  Group server(command, "A server instead of this machine");
  server.Add("--url", a.url, "URL", "http://127.0.0.1:8000/v1; /v1 may be left out")->check(NotEmpty());
  server.Add("--api-key", a.key, "KEY", "Its key (QUIRE_API_KEY)")->envname("QUIRE_API_KEY");
  server.Add("--timeout", a.timeout_s, "SECONDS", "That it may be silent before a request has failed (default 600)")
      ->check(NumberIn(1, 1'000'000));
  server.Add("--served-model-name", a.model_name, "NAME", "Its model (default: its first)");
  Group output(command, "Where the figures go");
  output.Add("-o,--output", a.output, "FILE", "As JSON; -: on standard output, instead of the table");
  output.Add("--plot", a.plot, "FILE", "Tokens per second against requests at once, as SVG");
  AddMachineOptions(command, &a.machine);
  command->footer(
      "A level's figures: pages and tokens per second over all its requests; of single requests the time to the first\n"
      "token and, after it, for each token: the median, and what 95% and 99% stay under.\n"
      "\n"
      "Exit code: 0 all requests were answered, 1 some failed.");
  command->callback([=] { *exit_code = Bench(*arguments); });
}

}  // namespace quire::cli
