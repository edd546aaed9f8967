// quire-stage-parity: a device's stages against a reference's float32 run, each fed with the reference's own input, and
// no further from it than the reference's bf16 run times a limit. tools/stage_reference.py writes the reference.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "apps/bench/flags.h"
#include "apps/bench/stage_runner.h"
#include "backend/registry.h"
#include "base/error.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUsage =
    "quire-stage-parity --model FOLDER --reference FOLDER [--device NAME] [--dtype bf16|f32] [--limit 1.15] [--json "
    "FILE]";

std::vector<std::string> PagesIn(const std::string& folder) {
  std::vector<std::string> pages;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".safetensors") pages.push_back(entry.path().string());
  if (pages.empty())
    throw Error(ErrorKind::kNotFound, "there are no stage tensors in the folder", folder,
                "tools/stage_reference.py writes them");
  std::ranges::sort(pages);
  return pages;
}

int StageParity(int argc, char** argv) {
  Flags flags(argc, argv, kUsage);
  const std::string folder = flags.Required("model"), reference = flags.Required("reference");
  const std::string device = flags.Text("device", "auto"), json = flags.Text("json", "");
  const DType dtype = flags.Choice("dtype", {"bf16", "f32"}) == 0 ? DType::kBf16 : DType::kF32;
  const double limit = flags.Real("limit", 1.15);
  flags.Finish();

  const std::vector<std::string> pages = PagesIn(reference);
  const std::unique_ptr<Model> loaded = LoadModel(folder, CreateBackend(device, {.dtype = dtype}));
  auto* model = dynamic_cast<Ocr2*>(loaded.get());
  if (!model) throw Error(ErrorKind::kUnsupported, "wanted a DeepSeek-OCR-2 model", folder);
  StageErrors errors;
  StageRunner runner(*model, &errors);
  for (const std::string& page : pages) runner.Run(ReferencePage(page));

  const BackendInfo& info = model->backend().info();
  std::printf("%s, %s, %zu pages\n%s", info.device.c_str(), std::string(Name(info.dtype)).c_str(), pages.size(),
              errors.ToTable(limit).c_str());
  if (!json.empty()) {
    Json report = errors.ToJson(limit);
    report.Set("device", info.device);
    report.Set("dtype", Name(info.dtype));
    report.Set("pages", pages.size());
    std::ofstream out(json);
    out << report.Dump(2) << '\n' << std::flush;
    if (!out) throw Error(ErrorKind::kIo, "cannot write", json);
  }
  return errors.Within(limit) ? 0 : 1;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::RunProgram("quire-stage-parity", [&] { return quire::StageParity(argc, argv); });
}
