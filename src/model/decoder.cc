#include "model/decoder.h"

namespace quire {

Decoder::Decoder(const LmConfig& config, WeightMap& weights) {
  const int width = config.hidden, q = config.heads * config.head_dim, kv = config.kv_heads * config.head_dim;
  program_.width = width;
  embed_.table = weights.Matrix(Role::kEmbedding, "model.embed_tokens.weight", {config.vocab, width});
  program_.calls.push_back(&embed_);

  for (int i = 0; i < config.layers; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    Layer& layer = *layers_.emplace_back(std::make_unique<Layer>());
    layer.attention = {
        .norm = weights.RmsNorm(prefix + "input_layernorm", width, config.rms_eps),
        .qkv = weights.Joined(Role::kProjection, prefix + "self_attn.", {{"q_proj", q}, {"k_proj", kv}, {"v_proj", kv}},
                              width, false),
        .out = weights.Linear(Role::kProjection, prefix + "self_attn.o_proj", width, q, false),
        .layer = i,
        .heads = config.heads,
        .kv_heads = config.kv_heads,
        .head_dim = config.head_dim,
        .rope_theta = config.rope_theta,
    };
    program_.calls.push_back(&layer.attention);

    RmsNormWeights norm = weights.RmsNorm(prefix + "post_attention_layernorm", width, config.rms_eps);
    auto gate_up = [&](const std::string& where, int ffn) {
      return weights.Joined(Role::kProjection, where, {{"gate_proj", ffn}, {"up_proj", ffn}}, width, false);
    };
    auto down = [&](const std::string& where, int ffn) {
      return weights.Linear(Role::kProjection, where + "down_proj", width, ffn, false);
    };
    const std::string mlp = prefix + "mlp.";
    if (i < config.dense_layers) {
      layer.dense = std::make_unique<DenseBlock>(
          DenseBlock{std::move(norm), gate_up(mlp, config.dense_ffn), down(mlp, config.dense_ffn)});
      program_.calls.push_back(layer.dense.get());
    } else {
      const int shared = config.shared_experts * config.moe_ffn;  // fused into one
      layer.moe = std::make_unique<MoeBlock>(MoeBlock{
          .norm = std::move(norm),
          .router = weights.Matrix(Role::kRouter, mlp + "gate.weight", {config.experts, width}),
          .experts = weights.Experts(mlp + "experts.", config.experts, config.moe_ffn, width),
          .shared_gate_up = shared ? gate_up(mlp + "shared_experts.", shared) : LinearWeights{},
          .shared_down = shared ? down(mlp + "shared_experts.", shared) : LinearWeights{},
          .top_k = config.experts_per_token,
          .normalize = config.norm_topk_prob,
          .scale = config.routed_scaling_factor,
      });
      program_.calls.push_back(layer.moe.get());
    }
  }

  head_ = {weights.RmsNorm("model.norm", width, config.rms_eps),
           weights.Linear(Role::kProjection, "lm_head", config.vocab, width, false)};
  program_.calls.push_back(&head_);
}

}  // namespace quire
