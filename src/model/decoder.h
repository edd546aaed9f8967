// The language model that both models share: DeepSeek's mixture of experts with plain multi-head attention.
// Source: model.md 1.1 and 2.1 (modeling_deepseekv2.py of the published code).
#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"
#include "model/config.h"
#include "model/weight_map.h"

namespace quire {

class Decoder {
 public:
  // Takes the tensors `model.embed_tokens`, `model.layers.*`, `model.norm` and `lm_head`.
  Decoder(const LmConfig& config, WeightMap& weights);

  // Its forward, in the order of calls. Lives as long as this.
  const StepProgram& program() const { return program_; }

 private:
  struct Layer {
    AttentionBlock attention;
    std::unique_ptr<DenseBlock> dense;  // one of the two
    std::unique_ptr<MoeBlock> moe;
  };
  EmbedBlock embed_;
  std::vector<std::unique_ptr<Layer>> layers_;
  HeadBlock head_;
  StepProgram program_;
};

}  // namespace quire
