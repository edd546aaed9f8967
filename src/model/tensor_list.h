// All tensors of a model under their published names. Source: model.md 2.
#pragma once

#include <vector>

#include "model/config.h"

namespace quire {

// What a tensor is for; decides the values of a random one (random_tensor.h).
enum class TensorRole {
  kProduct,    // matrix or convolution; axis 0: outputs, the others: inputs
  kRouter,     // matrix that scores experts
  kEmbedding,  // rows looked up, and vectors that stand among them
  kPosition,   // added to rows
  kRelative,   // rows whose product with a query is added to the logits of an attention
  kNorm,       // multiplies a normalised row
  kBias,
};

struct ListedTensor {
  HostTensor tensor;  // name, dtype and shape; no data
  TensorRole role;
};

// In the order of a pass through the model: SAM, CLIP or encoder, projector, language model. All of dtype bf16.
std::vector<ListedTensor> TensorsOf(const ModelConfig& config);

// Patterns of tensors that some checkpoints carry and no model uses: tables that follow from the dimensions.
inline constexpr const char* kUnusedTensors[] = {"*.position_ids", "*.rotary_emb.inv_freq"};

}  // namespace quire
