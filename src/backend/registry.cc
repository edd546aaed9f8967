#include "backend/registry.h"

#include "backend/cuda/cuda.h"
#include "backend/reference/reference.h"
#include "base/error.h"
#ifdef QUIRE_HAS_CPU
#include "backend/cpu/cpu.h"
#endif

namespace quire {
namespace {

struct Entry {
  const char* name;
  std::unique_ptr<Backend> (*create)(const BackendOptions&);
};

constexpr Entry kEntries[] = {
#ifdef QUIRE_HAS_CPU
    {"cpu", CreateCpuBackend},
#endif
    {"reference", CreateReferenceBackend},
};

}  // namespace

std::vector<std::string> BackendNames() {
  std::vector<std::string> names;
  if (CudaProblem().empty()) names.emplace_back("cuda");
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  return names;
}

std::unique_ptr<Backend> CreateBackend(const std::string& name, const BackendOptions& options) {
  if (name == "cuda" || name.starts_with("cuda:")) return CreateCudaBackend(name, options);
  std::string known = "cuda, cuda:N";
  for (const Entry& entry : kEntries) {
    if (name == entry.name || name == "auto") return entry.create(options);
    known += std::string(", ") + entry.name;
  }
  throw Error(ErrorKind::kUsage, "unknown device \"" + name + "\"", "", "this build has: auto, " + known);
}

}  // namespace quire
