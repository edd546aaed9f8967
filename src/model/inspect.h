// What a model folder holds and what it will cost, without loading it.
#pragma once

#include <string>
#include <vector>

#include "model/config.h"

namespace quire {

struct ModelSummary {
  struct Part {
    std::string name;  // "sam", "encoder", "routed experts"
    int64_t tensors = 0;
    int64_t parameters = 0;
    size_t bytes = 0;
  };
  struct Stored {
    DType dtype;
    int64_t tensors = 0;
    size_t bytes = 0;
  };

  std::string path;
  ModelConfig config;
  std::vector<std::string> files;
  std::vector<Part> parts;  // those that the model has, in the order of a pass through it
  std::vector<Stored> stored;
  Part total;
  int64_t active_parameters = 0;  // of the language model, that one token multiplies with

  // Memory: the mapped files, the vision part once more in the backend's packed form, the cache of keys and values in
  // 16 bits. What a step needs beside is not in it.
  size_t mapped_bytes = 0;
  size_t packed_vision_bytes = 0;
  size_t cache_bytes_per_1000_tokens = 0;

  std::vector<std::string> problems;  // tensors that are missing, of another shape, or unknown: it will not load
};

// path: as for Checkpoint::Open. Throws as that and LoadConfig do; tensors that do not fit are `problems`.
ModelSummary InspectModel(const std::string& path);

// For people: lines of at most about 120 characters, with a line feed after each.
std::string ToText(const ModelSummary& summary);
Json ToJson(const ModelSummary& summary);

}  // namespace quire
