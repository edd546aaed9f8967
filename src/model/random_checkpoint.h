// Model folders with random weights: they read nothing, and cost and load like real ones.
#pragma once

#include <cstdint>
#include <string>

#include "base/thread_pool.h"
#include "model/config.h"

namespace quire {

// A model of the same parts as the published one and about 1.7 million parameters.
ModelConfig SmallConfig(Architecture architecture);

// config.json of a model: ReadConfig gives the same numbers.
Json ConfigJson(const ModelConfig& config);

// Writes config.json, processor_config.json, tokenizer.json (bytes, fillers and the special tokens; no merges), the
// index and one shard of bf16 weights, see docs/random-checkpoint.md. Makes the folder; the shard gets its name when it
// is whole. Throws Error{kIo}.
void WriteRandomCheckpoint(const ModelConfig& config, uint64_t seed, const std::string& folder, ThreadPool* pool);

}  // namespace quire
