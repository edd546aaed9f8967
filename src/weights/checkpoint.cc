#include "weights/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/check.h"
#include "base/error.h"
#include "base/json.h"

namespace quire {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kIndexSuffix = ".safetensors.index.json";

[[noreturn]] void Fail(const std::string& where, const std::string& what, const std::string& hint = {}) {
  throw Error(ErrorKind::kBadModel, what, where, hint);
}

std::vector<std::string> NamesEndingWith(const fs::path& folder, std::string_view suffix) {
  std::vector<std::string> names;
  std::error_code failed;
  for (auto entry = fs::directory_iterator(folder, failed); entry != fs::directory_iterator();
       entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    if (name.ends_with(suffix)) names.push_back(name);
    if (failed) break;
  }
  if (failed) throw Error(ErrorKind::kIo, "cannot list the folder: " + failed.message(), folder.string());
  std::ranges::sort(names);
  return names;
}

// The name of the one index in folder, empty when there is none.
std::string FindIndex(const fs::path& folder) {
  const std::vector<std::string> names = NamesEndingWith(folder, kIndexSuffix);
  const std::string usual = "model" + std::string(kIndexSuffix);
  if (std::ranges::find(names, usual) != names.end()) return usual;
  if (names.size() > 1) Fail(folder.string(), "wanted one index, found " + names[0] + " and " + names[1]);
  return names.empty() ? "" : names[0];
}

// A shard is a file in the index's own folder.
void CheckShardName(const std::string& name, const std::string& index_path) {
  if (name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos || !name.ends_with(kSuffix))
    Fail(index_path, "wanted the names of .safetensors files in the same folder, found \"" + name + "\"");
}

// Tensor -> shard.
std::map<std::string, std::string> ReadIndex(const std::string& index_path) {
  std::map<std::string, std::string> shards;
  try {
    const Json index = Json::Parse(ReadFile(index_path), index_path);
    for (const auto& [tensor, shard] : index.At("weight_map").as_object()) {
      CheckShardName(shard.as_string(), index_path);
      if (!shards.emplace(tensor, shard.as_string()).second)
        Fail(index_path, "the name \"" + tensor + "\" is in weight_map twice");
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBadInput) throw;
    Fail(index_path, error.message());
  }
  if (shards.empty()) Fail(index_path, "wanted tensors in weight_map, found none");
  return shards;
}

}  // namespace

Checkpoint Checkpoint::Open(const std::string& path) {
  Checkpoint checkpoint;
  checkpoint.path_ = path;
  const fs::path folder(path);
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    checkpoint.AddFile(path);
    return checkpoint;
  }
  const fs::path single = folder / "model.safetensors";
  if (fs::exists(single, ignored)) {
    checkpoint.AddFile(single.string());
    return checkpoint;
  }
  if (const std::string index = FindIndex(folder); !index.empty()) {
    checkpoint.AddIndexed((folder / index).string());
    return checkpoint;
  }
  const std::vector<std::string> shards = NamesEndingWith(folder, kSuffix);
  if (shards.empty())
    throw Error(ErrorKind::kNotFound, "wanted *.safetensors files in the model's folder, found none", path);
  for (const std::string& shard : shards) checkpoint.AddFile((folder / shard).string());
  return checkpoint;
}

void Checkpoint::AddFile(const std::string& path) {
  files_.emplace_back(path);
  const std::vector<HostTensor>& tensors = files_.back().tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto [place, added] = places_.emplace(tensors[i].name, Place{files_.size() - 1, i});
    if (!added) Fail(path + ": " + tensors[i].name, "the tensor is also in " + files_[place->second.file].path());
    tensor_bytes_ += tensors[i].bytes();
  }
}

void Checkpoint::AddIndexed(const std::string& index_path) {
  const std::map<std::string, std::string> shard_of = ReadIndex(index_path);
  const fs::path folder = fs::path(index_path).parent_path();
  std::map<std::string, std::string> path_of;  // of each shard, in ascending order of names
  for (const auto& [tensor, shard] : shard_of) path_of[shard] = (folder / shard).string();
  for (const auto& [shard, path] : path_of) {
    std::error_code ignored;
    if (!fs::exists(path, ignored))
      Fail(path, "the index " + index_path + " names this file, and it is missing", "half downloaded? fetch it again");
    AddFile(path);
    for (const HostTensor& tensor : files_.back().tensors()) {
      const auto promised = shard_of.find(tensor.name);
      if (promised == shard_of.end() || promised->second != shard)
        Fail(path + ": " + tensor.name, "the index " + index_path + " puts this tensor " +
                                            (promised == shard_of.end() ? "nowhere" : "into " + promised->second));
    }
  }
  for (const auto& [tensor, shard] : shard_of)
    if (!Find(tensor))
      Fail(path_of[shard] + ": " + tensor, "the index " + index_path + " puts this tensor here, it is missing");
}

const HostTensor* Checkpoint::Find(std::string_view name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &files_[found->second.file].tensors()[found->second.index];
}

const std::string& Checkpoint::FileOf(std::string_view name) const {
  const auto found = places_.find(name);
  QUIRE_CHECK(found != places_.end());
  return files_[found->second.file].path();
}

void Checkpoint::DropPages(const HostTensor& tensor) const {
  files_[places_.at(tensor.name).file].DropPages(tensor);
}

}  // namespace quire
