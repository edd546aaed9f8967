#include "apps/cli/machine_arguments.h"

#include "apps/cli/options.h"
#include "base/error.h"

namespace quire::cli {
namespace {

constexpr int kMostThreads = 1024;

DType ChooseDType(const std::string& name) {
  if (name == "f32" || name == "float32") return DType::kF32;
  if (name == "auto" || name == "bf16" || name == "bfloat16") return DType::kBf16;
  throw Error(ErrorKind::kUsage, "unknown dtype \"" + name + "\"", "--dtype", "one of auto, bf16, f32");
}

}  // namespace

void AddMachineOptions(CLI::App* command, MachineArguments* arguments) {
  MachineArguments& a = *arguments;
  Group group(command, "Model and machine");
  group
      .Add("--model", a.model, "FOLDER",
           "A DeepSeek-OCR-2 checkpoint, or a model that comes with quire (QUIRE_MODEL; default tiny)")
      ->envname("QUIRE_MODEL");
  std::string devices;
  for (const std::string& name : BackendNames()) devices += ", " + name;
  group.Add("--device", a.device, "NAME", "auto" + devices + " (QUIRE_DEVICE; default auto)")->envname("QUIRE_DEVICE");
  group.Add("--dtype", a.dtype, "NAME", "Numbers of products: auto, bf16, f32 (QUIRE_DTYPE; default auto: bf16)")
      ->envname("QUIRE_DTYPE");
  group.Add("--threads", a.threads, "N", "QUIRE_THREADS; default 0: one for each processor")
      ->check(NumberIn(0, kMostThreads))
      ->envname("QUIRE_THREADS");
}

std::unique_ptr<Backend> MakeBackend(const MachineArguments& arguments) {
  return CreateBackend(arguments.device, {.dtype = ChooseDType(arguments.dtype), .threads = arguments.threads});
}

}  // namespace quire::cli
