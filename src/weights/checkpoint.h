// The tensors of a model folder, whatever files they lie in.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tensor/tensor.h"
#include "weights/safetensors.h"

namespace quire {

// Owner of the mapped files of one model. Movable, not copyable; reads from any thread.
class Checkpoint {
 public:
  // path: a .safetensors file, or a folder with (in this order, as transformers looks) `model.safetensors`, an index
  // `*.safetensors.index.json` with its shards, or shards without an index. The index must put every tensor where it
  // is; its metadata.total_size is not checked (the published V2 states a wrong one).
  // Throws Error{kNotFound} when there is nothing of this kind, {kBadModel} naming file and tensor otherwise.
  static Checkpoint Open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<SafetensorsFile>& files() const { return files_; }
  size_t tensor_count() const { return places_.size(); }
  size_t tensor_bytes() const { return tensor_bytes_; }

  // nullptr when absent. The tensor lives as long as the checkpoint, also when that is moved.
  const HostTensor* Find(std::string_view name) const;
  // Path of the file that holds a tensor; the tensor must be there.
  const std::string& FileOf(std::string_view name) const;
  // See SafetensorsFile::DropPages.
  void DropPages(const HostTensor& tensor) const;

 private:
  struct Place {
    size_t file;
    size_t index;  // in the file's tensors()
  };
  void AddFile(const std::string& path);
  void AddIndexed(const std::string& index_path);

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string_view, Place> places_;  // keys: the tensors' own names
  size_t tensor_bytes_ = 0;
};

}  // namespace quire
