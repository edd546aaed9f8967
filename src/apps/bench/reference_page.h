// Stage tensors of one page, as tools/stage_reference.py writes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weights/safetensors.h"

namespace quire {

class ReferencePage {
 public:
  explicit ReferencePage(const std::string& path) : file_(path) {}

  bool Has(const std::string& name) const { return Find(name) != nullptr; }
  // Throw Error{kNotFound} for a tensor that is not there, {kBadModel} for one of another dtype.
  const HostTensor& Tensor(const std::string& name) const;
  std::vector<float> Floats(const std::string& name) const { return Tensor(name).ToFloats(); }
  std::span<const int32_t> Ints(const std::string& name) const;
  std::span<const uint8_t> Bytes(const std::string& name) const;

 private:
  const HostTensor* Find(const std::string& name) const;
  SafetensorsFile file_;
};

}  // namespace quire
