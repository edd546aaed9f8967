// One safetensors file: a length, a JSON table of tensors, their bytes.
// Format: https://github.com/huggingface/safetensors#format
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/mmap_file.h"
#include "tensor/tensor.h"

namespace quire {

// The tensors of a file whose whole content is `bytes`, in the order of their data, which stays where it is. `name` is
// the file's name in messages. Strict, as the format's own reader is: tensors neither overlap nor leave holes, and the
// last one ends the file, so bytes behind it are refused too. Throws Error{kBadModel} naming file and tensor.
std::vector<HostTensor> ParseSafetensors(std::span<const uint8_t> bytes, const std::string& name);

// A mapped file and its table. Movable, not copyable; reads from any thread.
class SafetensorsFile {
 public:
  // Throws as MmapFile and ParseSafetensors do.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return map_.path(); }
  // In the order of the data. Every tensor is aligned to its element: the data of a file whose table ends at an odd
  // place (writers before 2023 did not pad it) is copied.
  const std::vector<HostTensor>& tensors() const { return tensors_; }

  // Gives back the memory of a tensor's pages; they are read again from the file when touched.
  void DropPages(const HostTensor& tensor) const;

 private:
  MmapFile map_;
  std::vector<HostTensor> tensors_;
  std::vector<HostBuffer> copies_;
};

}  // namespace quire
