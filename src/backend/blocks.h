// The blocks that models are made of, as data: prepared weights and the numbers of the architecture.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "backend/weight.h"

namespace quire {

enum class Activation { kNone, kGelu /* exact, with erf */, kQuickGelu /* x sigmoid(1.702 x) */ };

struct LayerNormWeights {
  WeightPtr weight, bias;  // [width]
  float eps;
};

struct RmsNormWeights {
  WeightPtr weight;  // [width]
  float eps;
};

struct LinearWeights {
  WeightPtr weight;  // [n, k]
  WeightPtr bias;    // [n] or none
};

// SAM's decomposed relative positions: [2 side - 1, head_dim] each, where side is the window's or the grid's.
struct RelativePositions {
  WeightPtr rows, columns;
};

// One block of a ViT: x += proj(attention(norm1(x))); x += lin2(act(lin1(norm2(x)))). SAM and CLIP.
struct VitBlock {
  LayerNormWeights norm1, norm2;
  LinearWeights qkv, proj, lin1, lin2;
  int heads;
  Activation activation;
  int window = 0;  // side of a window in tokens; 0: attention over the whole grid
};

// Attention over a sequence with a two-part mask: every row sees keys [0, prefix), row i >= prefix also prefix..i.
struct EncoderBlock {
  RmsNormWeights norm1, norm2;
  LinearWeights qkv, out, gate_up, down;  // gate_up joined: gate first
  int heads, kv_heads, head_dim;
  float rope_theta;
};

// Decoder. x += out(attention(rope(qkv(norm(x))))), keys and values appended to the paged cache first.
struct AttentionBlock {
  RmsNormWeights norm;
  LinearWeights qkv, out;
  int layer;  // of the KV cache
  int heads, kv_heads, head_dim;
  float rope_theta;
};

// x += down(silu(gate(norm(x))) * up(norm(x)))
struct DenseBlock {
  RmsNormWeights norm;
  LinearWeights gate_up, down;
};

// x += sum over the chosen experts of p_e expert_e(norm(x)) + shared(norm(x))
struct MoeBlock {
  RmsNormWeights norm;
  WeightPtr router;   // [experts, width]
  WeightPtr experts;  // Role::kExperts
  LinearWeights shared_gate_up, shared_down;
  int top_k;
  bool normalize;  // probabilities of the chosen divided by their sum
  float scale;
};

struct EmbedBlock {
  WeightPtr table;  // [vocab, width]
};

// logits = head(norm(x)), then one token a row.
struct HeadBlock {
  RmsNormWeights norm;
  LinearWeights head;  // [vocab, width]
};

// The decoder's forward, recorded once: block calls over the one residual buffer [rows, width], in order. A backend
// runs it call by call, captures it as a graph, or interprets it in one kernel. The blocks belong to the model.
struct StepProgram {
  using Call =
      std::variant<const EmbedBlock*, const AttentionBlock*, const DenseBlock*, const MoeBlock*, const HeadBlock*>;
  int64_t width;  // of the residual
  std::vector<Call> calls;
};

}  // namespace quire
