#include "apps/cli/model_choice.h"

#include <filesystem>
#include <system_error>

#include "base/error.h"

namespace quire::cli {
namespace {

constexpr const char* kDefaultModel = "tiny";
constexpr const char* kFolderHint =
    "name the folder of a DeepSeek-OCR-2 checkpoint: config.json, tokenizer.json, *.safetensors";

// models/NAME beside the program, above it (a build folder in the source tree), or in share/quire (installed).
std::string FindShipped(const std::string& name, std::string* looked) {
  const std::filesystem::path program = ProgramFolder();
  for (const char* place : {"models", "../models", "../share/quire/models"}) {
    const std::filesystem::path folder = (program / place / name).lexically_normal();
    std::error_code error;
    if (std::filesystem::exists(folder / "config.json", error)) return folder.string();
    *looked += (looked->empty() ? "" : ", ") + folder.string();
  }
  return {};
}

}  // namespace

std::string ProgramFolder() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::string(".") : program.parent_path().string();
}

ModelChoice ChooseModel(const std::string& named) {
  const std::string name = named.empty() ? kDefaultModel : named;
  std::error_code error;
  if (!named.empty() && std::filesystem::is_directory(named, error)) {
    if (!std::filesystem::exists(std::filesystem::path(named) / "config.json", error))
      throw Error(ErrorKind::kNotFound, std::string("wanted a model's folder, found no config.json in it"), named,
                  kFolderHint);
    return {named, false};
  }
  std::string looked;
  if (name.find('/') == std::string::npos) {
    if (const std::string folder = FindShipped(name, &looked); !folder.empty()) return {folder, named.empty()};
  }
  throw Error(ErrorKind::kNotFound, "no model \"" + name + "\"" + (looked.empty() ? "" : "; looked in " + looked), "",
              kFolderHint);
}

}  // namespace quire::cli
