// quire-make-checkpoint: a model folder with random weights, for timing and tests (docs/random-checkpoint.md).
#include <algorithm>
#include <thread>

#include "apps/bench/flags.h"
#include "model/random_checkpoint.h"

namespace quire {
namespace {

int MakeCheckpoint(int argc, char** argv) {
  Flags flags(argc, argv, "quire-make-checkpoint [--arch ocr1|ocr2] [--size full|small] [--seed N] FOLDER");
  const auto architecture = flags.Choice("arch", {"ocr2", "ocr1"}) == 0 ? Architecture::kOcr2 : Architecture::kOcr1;
  const bool full = flags.Choice("size", {"full", "small"}) == 0;
  const uint64_t seed = flags.Number("seed", 1);
  const std::string folder = flags.Folder("a folder to write to");
  flags.Finish();
  ThreadPool pool(std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
  WriteRandomCheckpoint(full ? PublishedConfig(architecture) : SmallConfig(architecture), seed, folder, &pool);
  return 0;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::RunProgram("quire-make-checkpoint", [&] { return quire::MakeCheckpoint(argc, argv); });
}
