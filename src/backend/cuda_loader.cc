// Finds and loads the CUDA module.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "backend/cuda/cuda.h"
#include "backend/cuda/module.h"
#include "base/error.h"

namespace quire {
namespace {

struct Module {
  decltype(&quire_cuda_device_count) device_count = nullptr;
  decltype(&quire_cuda_error_text) error_text = nullptr;
  decltype(&quire_cuda_create) create = nullptr;
  std::string missing;  // why there is none
};

std::vector<std::string> Places() {
  if (const char* named = std::getenv("QUIRE_CUDA_MODULE")) return {named};
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  return {program / "quire-cuda.so", program / "../quire-cuda.so", program / "../lib/quire/quire-cuda.so"};
}

Module Load() {
  Module m;
  for (const std::string& place : Places()) {
    if (access(place.c_str(), F_OK) != 0) continue;
    void* handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      m.missing = dlerror();
      continue;
    }
    m.device_count = reinterpret_cast<decltype(m.device_count)>(dlsym(handle, "quire_cuda_device_count"));
    m.error_text = reinterpret_cast<decltype(m.error_text)>(dlsym(handle, "quire_cuda_error_text"));
    m.create = reinterpret_cast<decltype(m.create)>(dlsym(handle, "quire_cuda_create"));
    if (m.device_count && m.error_text && m.create) return m;
    m.missing = place + " is no CUDA module of this program";
  }
  if (m.missing.empty()) m.missing = "this installation has no CUDA module (quire-cuda.so)";
  m.create = nullptr;
  return m;
}

const Module& TheModule() {
  static const Module module = Load();
  return module;
}

int IndexOf(const std::string& device) {
  if (device == "cuda") return 0;
  const std::string number = device.substr(std::string("cuda:").size());
  if (number.empty() || number.size() > 3 || number.find_first_not_of("0123456789") != std::string::npos)
    throw Error(ErrorKind::kUsage, "wanted cuda or cuda:NUMBER, found \"" + device + "\"");
  return std::stoi(number);
}

}  // namespace

int CudaDeviceCount() {
  const Module& m = TheModule();
  return m.create ? std::max(0, m.device_count()) : 0;
}

std::unique_ptr<Backend> CreateCudaBackend(const std::string& device, const BackendOptions& options) {
  const int index = IndexOf(device);
  const Module& m = TheModule();
  if (!m.create)
    throw Error(ErrorKind::kUnsupported, m.missing, {}, "build with the CUDA toolkit installed, or use --device cpu");
  const int count = m.device_count();
  if (count <= 0)
    throw Error(ErrorKind::kUnsupported,
                "wanted a CUDA device, found none" + (count < 0 ? std::string(": ") + m.error_text(-count) : ""), {},
                "`nvidia-smi` shows what the driver sees; --device cpu needs none");
  if (index >= count)
    throw Error(ErrorKind::kUsage,
                "wanted CUDA device " + std::to_string(index) + ", found " + std::to_string(count) + " of them");
  return std::unique_ptr<Backend>(m.create(options, index));
}

}  // namespace quire
