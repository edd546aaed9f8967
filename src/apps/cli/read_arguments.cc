#include "apps/cli/read_arguments.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <limits>

#include "apps/cli/options.h"
#include "base/error.h"

namespace quire::cli {
namespace {

constexpr int64_t kMostPixels = 4'000'000'000;
constexpr double kMostSeconds = 1e7;

void AddOutputOptions(CLI::App* command, ReadArguments& a) {
  Group group(command, "Options");
  CLI::Option* output = group.Add("-o,--output", a.output, "FILE",
                                  "Write there, not to standard output; a folder, or NAME/: a file for each picture");
  CLI::Option* json =
      group.AddFlag("--json", a.json, "A record for each page, one line of JSON each: text, boxes, ...");
  CLI::Option* raw = group.AddFlag("--raw", a.raw, "What the model writes, with its marks, instead of Markdown");
  raw->excludes(json);
  CLI::Option* stats =
      group.AddFlag("--stats", a.stats, "At the end: times of all stages beside what the machine allows");
  group.AddFlag("--dry-run", a.dry_run, "Do not read: say as JSON how each page would be cut, and its tokens")
      ->excludes(output)
      ->excludes(raw)
      ->excludes(stats);
}

void AddTaskOptions(CLI::App* command, ReadArguments& a) {
  Group group(command, "What to read");
  CLI::Option* task =
      group.Add("--task", a.read.task, "NAME",
                "document (the usual default), plain, figure, describe, locate, ...: what the model has");
  CLI::Option* text = group.Add("--text", a.read.task_text, "TEXT", "What to look for, with --task locate");
  group.Add("--prompt", a.read.prompt, "TEXT", "A prompt of your own instead of a task; <image> stands for the page")
      ->excludes(task)
      ->excludes(text);
  group.Add("--mode", a.read.mode, "NAME",
            "How a page is cut: strips, gundam (tiles), base, small, ... (default: the model's)");
  group.Add("--max-tiles", a.read.max_tiles, "N", "Most tiles of a page (default 0: the model's)")->check(AtLeast(0));
  group.AddFlag("--keep-blank", a.keep_blank, "Show pages without ink to the model too");
  group
      .Add("--max-pixels", a.pictures.max_pixels, "N",
           "Refuse larger pictures, before they are decoded (default 200000000)")
      ->check(NumberIn<int64_t>(1, kMostPixels));
}

void AddTextOptions(CLI::App* command, ReadArguments& a) {
  Group group(command, "How it is written");
  group
      .Add("--max-tokens", a.read.max_tokens, "N",
           "Most tokens of a page (default 0: what model and context allow each strip or page)")
      ->check(AtLeast(0));
  group.Add("--timeout", a.timeout_s, "SECONDS", "Most time for a page (default 0: no limit)")
      ->check(NumberIn(0.0, kMostSeconds));
  group.Add("--temperature", a.read.temperature, "T", "0 to 100 (default 0: always the likeliest token)")
      ->check(NumberIn(0.0, 100.0));
  group.Add("--top-p", a.read.top_p, "P", "With a temperature: the likeliest tokens up to this share (default 1: all)")
      ->check(NumberIn(0.0, 1.0));
  group.Add("--top-k", a.read.top_k, "K", "With a temperature: the K likeliest tokens (default 0: all)")
      ->check(AtLeast(0));
  group.Add("--seed", a.read.seed, "N", "With a temperature: the same seed gives the same text (default 0)")
      ->check(NumberIn<int64_t>(0, std::numeric_limits<int64_t>::max()));
  group.Add("--guard", a.guard, "NAME", "Ban on repeats: model (default), official-pdf, official-eval, hf, off");
  group.Add("--ngram-size", a.ngram_size, "N", "Of that ban: how many tokens may not repeat (0: no ban)")
      ->check(AtLeast(0));
  group.Add("--ngram-window", a.ngram_window, "N", "Of that ban: tokens looked back on (0: no ban)")->check(AtLeast(0));
  group.AddFlag("--keep-loops", a.keep_loops, "Do not end a page whose text repeats itself");
}

}  // namespace

void AddReadOptions(CLI::App* command, ReadArguments* arguments) {
  command
      ->add_option("INPUT", arguments->inputs,
                   "JPEG, PNG, TIFF (all pages), WebP, HEIF, AVIF, GIF, JPEG 2000, BMP, PNM; - is standard input")
      ->required()
      ->option_text("...");
  AddOutputOptions(command, *arguments);
  AddTaskOptions(command, *arguments);
  AddTextOptions(command, *arguments);
  AddMachineOptions(command, &arguments->machine);
  command->footer(
      "Examples:\n"
      "  quire read page.png                    Markdown on the terminal, as it is being read\n"
      "  quire read -o text/ scans/*.jpg        a file in text/ for each picture\n"
      "  quire read --json book.tif >book.jsonl a record for each page\n"
      "  quire read - <page.webp                a picture from standard input\n"
      "  quire read --model DeepSeek-OCR-2/ ... with a checkpoint that was downloaded\n"
      "\n"
      "Exit code: 0 all pages were read; 1 some were not, or are doubtful or cut off; 2 wrong use;\n"
      "3 none was read. What went wrong is said on standard error.");
}

void CheckInputs(const std::vector<std::string>& inputs) {
  if (std::ranges::count(inputs, ""))
    throw Error(ErrorKind::kUsage, "wanted the name of a picture, found an empty one", "INPUT",
                "is a variable of the shell empty?");
  const auto standard_inputs = std::ranges::count(inputs, "-");
  if (standard_inputs > 1)
    throw Error(ErrorKind::kUsage,
                "wanted standard input (-) at most once, found it " + std::to_string(standard_inputs) + " times",
                "INPUT");
  if (standard_inputs == 1 && isatty(STDIN_FILENO) == 1)
    throw Error(ErrorKind::kUsage, "wanted a picture on standard input, found a terminal", "-",
                "quire read - <page.png");
}

}  // namespace quire::cli
