#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "apps/cli/bench_run.h"
#include "apps/cli/commands.h"
#include "apps/cli/model_choice.h"
#include "apps/cli/options.h"
#include "apps/cli/output.h"
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
  bool scenarios = false;
  std::string mode, url, key, model_name, output, plot;
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

BenchPicture ReadPicture(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorKind::kNotFound, "cannot read the picture", path.string());
  BenchPicture picture{.name = path.filename().string()};
  picture.bytes.assign(std::istreambuf_iterator<char>(in), {});
  return picture;
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

std::vector<BenchPicture> ReadPictures(const std::vector<std::string>& images) {
  std::vector<BenchPicture> pictures;
  for (const std::string& image : images) {
    std::error_code error;
    if (!fs::is_directory(image, error)) {
      pictures.push_back(ReadPicture(image));
      continue;
    }
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(image)) {
      const std::string extension = entry.path().extension().string();
      constexpr std::string_view kKnown[] = {".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp", ".gif"};
      if (entry.is_regular_file() && std::ranges::count(kKnown, extension)) files.push_back(entry.path());
    }
    if (files.empty()) throw Error(ErrorKind::kNotFound, "there is no picture in the folder", image);
    std::ranges::sort(files);
    for (const fs::path& file : files) pictures.push_back(ReadPicture(file));
  }
  return pictures;
}

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text << std::flush;
  if (!out) throw Error(ErrorKind::kIo, "cannot write", path);
}

// A short line, a few sentences, a page, a page described, and digits, which no language model guesses.
std::vector<ScenarioResult> RunScenarios(BenchTarget& target, const BenchArguments& arguments) {
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
    const BenchPicture picture = ReadPicture(FindSample(file));
    std::vector<BenchAnswer> answers;
    for (int i = 0; i < kScenarioRounds; ++i)
      answers.push_back(
          target.Ask({.picture = &picture, .task = task, .mode = arguments.mode, .max_tokens = arguments.max_tokens}));
    std::ranges::sort(answers, {}, &BenchAnswer::total_ms);
    results.push_back({name, answers[answers.size() / 2]});
  }
  return results;
}

int Bench(const BenchArguments& arguments) {
  const std::vector<int> levels = ParseLevels(arguments.concurrent);
  const std::vector<BenchPicture> pictures =
      ReadPictures(arguments.images.empty() ? std::vector{FindSample("paragraph.png").string()} : arguments.images);
  const std::unique_ptr<BenchTarget> target = arguments.url.empty()
                                                  ? MakeLocalTarget(arguments.machine, std::ranges::max(levels))
                                                  : MakeUrlTarget(arguments.url, arguments.key, arguments.model_name);
  std::vector<BenchQuestion> questions;
  for (const BenchPicture& picture : pictures)
    questions.push_back({.picture = &picture, .mode = arguments.mode, .max_tokens = arguments.max_tokens});

  BenchReport report{.target = target->Describe(), .start_up = target->start_up()};
  report.cold = target->Ask(questions[0]);
  ProgressLine progress;
  for (const int level : levels) {
    progress.Show(std::to_string(level) + " at once ...");
    if (arguments.warmup > 0) RunLevel(*target, questions, level, arguments.warmup);
    report.levels.push_back(RunLevel(*target, questions, level, arguments.rounds));
  }
  if (arguments.scenarios) report.scenarios = RunScenarios(*target, arguments);
  progress.Clear();

  if (!arguments.plot.empty()) WriteFile(arguments.plot, ToSvg(report));
  if (!arguments.output.empty()) WriteFile(arguments.output, ToJson(report).Dump(2) + "\n");
  Output().Write(ToTable(report));
  const bool all = report.cold.error.empty() &&
                   std::ranges::all_of(report.levels, [](const LevelResult& level) { return level.failed == 0; });
  return all ? 0 : 1;
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
  what.AddFlag("--scenarios", a.scenarios, "Also a line, sentences, a page, its description, and digits, each alone");
  Group server(command, "A server instead of this machine");
  server.Add("--url", a.url, "URL", "Up to and with /v1: http://127.0.0.1:8000/v1");
  server.Add("--api-key", a.key, "KEY", "Its key (QUIRE_API_KEY)")->envname("QUIRE_API_KEY");
  server.Add("--served-model-name", a.model_name, "NAME", "Its model (default: its first)");
  Group output(command, "Where the figures go");
  output.Add("-o,--output", a.output, "FILE", "As JSON");
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
