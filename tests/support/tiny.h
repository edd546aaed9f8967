// The shipped tiny model for tests, on every backend of the build.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "backend/registry.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

namespace quire {

inline const std::string kRoot = QUIRE_SOURCE_DIR;

inline const Tokenizer& TinyTokenizer() {
  static const Tokenizer tokenizer = Tokenizer::Load(kRoot + "/models/tiny/tokenizer.json");
  return tokenizer;
}

// A parameter of tests.
struct Device {
  std::string backend;
  DType dtype;
};
inline void PrintTo(const Device& device, std::ostream* out) {
  *out << device.backend << " " << Name(device.dtype);
}
inline std::string DeviceName(const testing::TestParamInfo<Device>& info) {
  return info.param.backend + "_" + std::string(Name(info.param.dtype));
}
inline std::vector<Device> Devices() {
  std::vector<Device> devices;
  for (const std::string& name : BackendNames()) {
    if (name != "cuda") devices.push_back({name, DType::kF32});
    if (name != "reference") devices.push_back({name, DType::kBf16});  // the reference has one arithmetic
  }
  return devices;
}

inline std::unique_ptr<Model> LoadTiny(const Device& device, int threads = 0) {
  return LoadModel(kRoot + "/models/tiny", CreateBackend(device.backend, {.dtype = device.dtype, .threads = threads}));
}

}  // namespace quire
