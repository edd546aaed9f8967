// quire-make-checkpoint: a model folder with random weights, for timing and tests (docs/random-checkpoint.md).
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "model/random_checkpoint.h"

namespace quire {
namespace {

constexpr const char* kUsage = "quire-make-checkpoint [--arch ocr1|ocr2] [--size full|small] [--seed N] FOLDER";

struct Options {
  Architecture architecture = Architecture::kOcr2;
  bool full = true;
  uint64_t seed = 1;
  std::string folder;
};

[[noreturn]] void Refuse(const std::string& what) {
  throw Error(ErrorKind::kUsage, what, "", kUsage);
}

// The place of `value` in `names`.
size_t Choose(std::string_view flag, std::string_view value, std::initializer_list<std::string_view> names) {
  size_t i = 0;
  std::string all;
  for (const std::string_view name : names) {
    if (name == value) return i;
    all += (i++ ? " or " : "") + std::string(name);
  }
  Refuse("wanted " + std::string(flag) + " " + all + ", found " + std::string(value));
}

uint64_t ReadSeed(const std::string& text) {
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc() || end != text.data() + text.size()) Refuse("wanted --seed of 0 to 2^64 - 1, found " + text);
  return seed;
}

Options ReadOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (!flag.starts_with("--")) {
      options.folder = flag;
      continue;
    }
    if (i + 1 == argc) Refuse("wanted a value behind " + std::string(flag));
    const std::string value = argv[++i];
    if (flag == "--arch")
      options.architecture = Choose(flag, value, {"ocr1", "ocr2"}) == 0 ? Architecture::kOcr1 : Architecture::kOcr2;
    else if (flag == "--size")
      options.full = Choose(flag, value, {"full", "small"}) == 0;
    else if (flag == "--seed")
      options.seed = ReadSeed(value);
    else
      Refuse("unknown flag " + std::string(flag));
  }
  if (options.folder.empty()) Refuse("wanted a folder to write to");
  return options;
}

int Main(int argc, char** argv) {
  try {
    const Options options = ReadOptions(argc, argv);
    ThreadPool pool(std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
    const ModelConfig config = options.full ? PublishedConfig(options.architecture) : SmallConfig(options.architecture);
    WriteRandomCheckpoint(config, options.seed, options.folder, &pool);
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "quire-make-checkpoint: %s\n", error.what());
    return Info(error.kind()).exit_code;
  }
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::Main(argc, argv);
}
