// Where each number of a model comes from: the shape of a tensor, a config file, or the published code.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tensor/tensor.h"

namespace quire {

// The tensor of a name; nullptr when the checkpoint lacks it.
using TensorLookup = std::function<const HostTensor*(std::string_view name)>;

enum class Origin { kTensor, kConfig, kPublished };
std::string_view Name(Origin origin);  // "tensor", "config", "published code"

// One number, as read.
struct Setting {
  std::string name;  // "lm.hidden"
  Json value;
  Origin origin = Origin::kPublished;
  std::string from;  // the tensor, or the key in the config file; empty for a published constant
};

// Objects of a config file that may hold a key; the first that does is believed.
struct Section {
  std::string path;  // for messages: "config.json: language_config"
  std::vector<const Json*> objects;
};

// Reads settings and keeps a record of them. A value passed by address holds the published constant before the call.
// Errors are Error{kBadModel} naming the key or tensor, and {kUnsupported} for what is known and not built.
class Settings {
 public:
  // A value that a setting might take.
  struct Candidate {
    int64_t value;
    Origin origin;
    std::string from;
  };
  struct Range {
    int64_t least, most;
  };

  explicit Settings(TensorLookup tensors) : tensors_(std::move(tensors)) {}

  // The size of a tensor's axis, divided by `divisor` without a rest; none when the tensor is absent.
  std::optional<Candidate> Axis(const std::string& tensor, int axis, int64_t divisor = 1) const;
  // How many tensors prefix + N + suffix there are, N = 0, 1, ...; none for 0.
  std::optional<Candidate> Count(const std::string& prefix, const std::string& suffix) const;
  // An integer of a config file; none when it is absent or null.
  std::optional<Candidate> Key(const Section& section, std::string_view key);
  // An integer in an array of a config file; none when the array is absent, null or shorter.
  std::optional<Candidate> Item(const Section& section, std::string_view key, size_t index);

  // The first candidate that is there decides; one that contradicts it becomes a note.
  void Read(const std::string& name, int* value, std::initializer_list<std::optional<Candidate>> candidates,
            Range range = {1, 1 << 20});
  void Read(const std::string& name, float* value, const Section& section, std::string_view key);
  void Read(const std::string& name, bool* value, const Section& section, std::string_view key);
  void Read(const std::string& name, std::vector<int>* value, const Section& section, std::string_view key);

  // Refuses a model whose config holds another value than the one that is built; absent and null are that value.
  void Want(const Section& section, std::string_view key, const Json& built) const;

  void Note(std::string text) { notes_.push_back(std::move(text)); }

  // What was read, in its order.
  const std::vector<Setting>& record() const { return record_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  // The member that is believed, nullptr when it is absent or null everywhere. A second value becomes a note.
  const Json* Find(const Section& section, std::string_view key);

  TensorLookup tensors_;
  std::vector<Setting> record_;
  std::vector<std::string> notes_;
};

}  // namespace quire
