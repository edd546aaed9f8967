// Finds and loads the CUDA module.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "backend/cuda/cuda.h"
#include "backend/cuda/module.h"
#include "base/error.h"

namespace quire {
namespace {

struct Module {
  decltype(&quire_cuda_device_count) device_count = nullptr;
  decltype(&quire_cuda_error_text) error_text = nullptr;
  decltype(&quire_cuda_driver_version) driver_version = nullptr;
  decltype(&quire_cuda_build_version) build_version = nullptr;
  decltype(&quire_cuda_create) create = nullptr;
  std::string missing;  // why there is none; empty where there is
};

std::vector<std::string> Places() {
  if (const char* named = std::getenv("QUIRE_CUDA_MODULE")) return {named};
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  return {program / "quire-cuda.so", program / "../quire-cuda.so", program / "../lib/quire/quire-cuda.so"};
}

template <typename Function>
bool Find(void* handle, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(handle, name));
  return *function != nullptr;
}

Module Load() {
  Module m;
  m.missing = "this installation has no CUDA module (quire-cuda.so)";
  for (const std::string& place : Places()) {
    if (access(place.c_str(), F_OK) != 0) continue;
    void* handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      m.missing = dlerror();
    } else if (Find(handle, "quire_cuda_device_count", &m.device_count) &&
               Find(handle, "quire_cuda_error_text", &m.error_text) &&
               Find(handle, "quire_cuda_driver_version", &m.driver_version) &&
               Find(handle, "quire_cuda_build_version", &m.build_version) &&
               Find(handle, "quire_cuda_create", &m.create)) {
      m.missing.clear();
      break;
    } else {
      m.missing = place + " is no CUDA module of this program";
    }
  }
  return m;
}

const Module& TheModule() {
  static const Module module = Load();
  return module;
}

// "13.0" for 13000
std::string VersionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

int IndexOf(const std::string& device) {
  if (device == "cuda") return 0;
  const std::string number = device.substr(std::string("cuda:").size());
  if (number.empty() || number.size() > 3 || number.find_first_not_of("0123456789") != std::string::npos)
    throw Error(ErrorKind::kUsage, "wanted cuda or cuda:NUMBER, found \"" + device + "\"");
  return std::stoi(number);
}

}  // namespace

std::string CudaProblem() {
  const Module& m = TheModule();
  if (!m.missing.empty()) return m.missing;
  const int driver = m.driver_version(), build = m.build_version();
  if (driver == 0) return "wanted an NVIDIA driver, found none";
  // A driver runs what was built for any version of its own major number, and for older ones.
  if (driver / 1000 < build / 1000)
    return "wanted an NVIDIA driver that knows CUDA " + VersionText(build) + ", found one for CUDA " +
           VersionText(driver) + ": update the driver";
  const int count = m.device_count();
  if (count < 0) return std::string("the NVIDIA driver says: ") + m.error_text(-count);
  if (count == 0) return "wanted a CUDA device, found none";
  return {};
}

std::unique_ptr<Backend> CreateCudaBackend(const std::string& device, const BackendOptions& options) {
  const int index = IndexOf(device);
  if (const std::string problem = CudaProblem(); !problem.empty())
    throw Error(ErrorKind::kUnsupported, problem, {}, "--device cpu needs none of it");
  const Module& m = TheModule();
  const int count = m.device_count();
  if (index >= count)
    throw Error(ErrorKind::kUsage,
                "wanted CUDA device " + std::to_string(index) + ", found " + std::to_string(count) + " of them");
  return std::unique_ptr<Backend>(m.create(options, index));
}

}  // namespace quire
