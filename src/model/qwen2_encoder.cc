#include "model/qwen2_encoder.h"

#include <numeric>

#include "base/error.h"

namespace quire {

Qwen2Encoder::Qwen2Encoder(const EncoderConfig& config, WeightMap& weights, Backend& backend)
    : config_(config), backend_(backend) {
  const std::string prefix = "model.qwen2_model.";
  const int width = config.hidden, head_dim = config.head_dim;
  const int q = config.heads * head_dim, kv = config.kv_heads * head_dim;
  queries_[config.queries_768] = weights.Matrix(Role::kTable, prefix + "query_768.weight", {config.queries_768, width});
  queries_[config.queries_1024] =
      weights.Matrix(Role::kTable, prefix + "query_1024.weight", {config.queries_1024, width});
  for (int i = 0; i < config.layers; ++i) {
    const std::string layer = prefix + "model.model.layers." + std::to_string(i) + ".";
    blocks_.push_back({
        .norm1 = weights.RmsNorm(layer + "input_layernorm", width, config.rms_eps),
        .norm2 = weights.RmsNorm(layer + "post_attention_layernorm", width, config.rms_eps),
        .qkv = weights.Joined(Role::kVision, layer + "self_attn.", {{"q_proj", q}, {"k_proj", kv}, {"v_proj", kv}},
                              width, true),
        .out = weights.Linear(Role::kVision, layer + "self_attn.o_proj", width, q, false),
        .gate_up = weights.Joined(Role::kVision, layer + "mlp.", {{"gate_proj", config.ffn}, {"up_proj", config.ffn}},
                                  width, false),
        .down = weights.Linear(Role::kVision, layer + "mlp.down_proj", width, config.ffn, false),
        .heads = config.heads,
        .kv_heads = config.kv_heads,
        .head_dim = head_dim,
        .rope_theta = config.rope_theta,
    });
  }
  norm_ = weights.RmsNorm(prefix + "model.model.norm", width, config.rms_eps);
}

View Qwen2Encoder::Forward(Context& c, const View& features) const {
  const int64_t views = features.shape[0], n = features.shape[1], width = features.shape[2];
  const auto queries = queries_.find(n);
  if (queries == queries_.end())
    throw Error(ErrorKind::kUnsupported, "no learned queries for views of " + std::to_string(n) + " tokens");

  const View read = c.arena.Take(features.dtype, {views, n, width});
  const Arena::Scope scope(c.arena);
  const View x = c.arena.Take(features.dtype, {views, 2 * n, width});
  for (int64_t v = 0; v < views; ++v) {
    const View sequence = x.Slice(v, 1).Reshaped({2 * n, width});
    backend_.Copy(c, features.Slice(v, 1).Reshaped({n, width}), sequence.Slice(0, n));
    backend_.CopyRows(c, *queries->second, sequence.Slice(n, n));
  }
  std::vector<int32_t> positions(static_cast<size_t>(views * 2 * n));
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int32_t>(i % static_cast<size_t>(2 * n));
  const View rows = c.arena.Take(DType::kI32, {views * 2 * n});
  backend_.CopyIn(c, positions.data(), rows);
  for (const EncoderBlock& block : blocks_) backend_.Run(c, block, static_cast<int>(n), rows, x);
  for (int64_t v = 0; v < views; ++v)
    backend_.Copy(c, x.Slice(v, 1).Reshaped({2 * n, width}).Slice(n, n), read.Slice(v, 1).Reshaped({n, width}));
  backend_.RmsNorm(c, read, norm_, read);
  return read;
}

}  // namespace quire
