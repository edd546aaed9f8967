#include "model/tensor_list.h"

#include <algorithm>

namespace quire {
namespace {

class Lister {
 public:
  explicit Lister(const ModelConfig& config) : config_(config) {}

  std::vector<ListedTensor> List() {
    ListSam(config_.sam);
    if (config_.clip) ListClip(*config_.clip);
    if (config_.encoder) ListEncoder(*config_.encoder);
    ListGlue();
    ListLanguageModel(config_.lm);
    return std::move(tensors_);
  }

 private:
  void Add(const std::string& name, const Shape& shape, TensorRole role) {
    tensors_.push_back({{name, nullptr, DType::kBf16, shape}, role});
  }
  void AddProduct(const std::string& name, int outputs, int inputs) {
    Add(name + ".weight", {outputs, inputs}, TensorRole::kProduct);
  }
  void AddBiased(const std::string& name, int outputs, int inputs) {
    AddProduct(name, outputs, inputs);
    Add(name + ".bias", {outputs}, TensorRole::kBias);
  }
  void AddConvolution(const std::string& name, int outputs, int inputs, int side) {
    Add(name + ".weight", {outputs, inputs, side, side}, TensorRole::kProduct);
  }
  void AddRmsNorm(const std::string& name, int width) { Add(name + ".weight", {width}, TensorRole::kNorm); }
  void AddLayerNorm(const std::string& name, int width) {
    AddRmsNorm(name, width);
    Add(name + ".bias", {width}, TensorRole::kBias);
  }
  void AddSwiGlu(const std::string& name, int width, int ffn) {
    AddProduct(name + "gate_proj", ffn, width);
    AddProduct(name + "up_proj", ffn, width);
    AddProduct(name + "down_proj", width, ffn);
  }

  void ListSam(const SamConfig& sam) {
    const std::string prefix = "model.sam_model.";
    Add(prefix + "pos_embed", {1, sam.grid, sam.grid, sam.width}, TensorRole::kPosition);
    AddConvolution(prefix + "patch_embed.proj", sam.width, 3, sam.patch_px);
    Add(prefix + "patch_embed.proj.bias", {sam.width}, TensorRole::kBias);
    for (int i = 0; i < sam.layers; ++i) {
      const std::string block = prefix + "blocks." + std::to_string(i) + ".";
      const bool global = std::ranges::find(sam.global_layers, i) != sam.global_layers.end();
      const int rows = 2 * (global ? sam.grid : sam.window) - 1;
      AddLayerNorm(block + "norm1", sam.width);
      AddBiased(block + "attn.qkv", 3 * sam.width, sam.width);
      Add(block + "attn.rel_pos_h", {rows, sam.width / sam.heads}, TensorRole::kRelative);
      Add(block + "attn.rel_pos_w", {rows, sam.width / sam.heads}, TensorRole::kRelative);
      AddBiased(block + "attn.proj", sam.width, sam.width);
      AddLayerNorm(block + "norm2", sam.width);
      AddBiased(block + "mlp.lin1", sam.mlp, sam.width);
      AddBiased(block + "mlp.lin2", sam.width, sam.mlp);
    }
    AddConvolution(prefix + "neck.0", sam.neck, sam.width, 1);
    AddLayerNorm(prefix + "neck.1", sam.neck);
    AddConvolution(prefix + "neck.2", sam.neck, sam.neck, 3);
    AddLayerNorm(prefix + "neck.3", sam.neck);
    AddConvolution(prefix + "net_2", sam.net2, sam.neck, 3);
    AddConvolution(prefix + "net_3", sam.out, sam.net2, 3);
  }

  void ListClip(const ClipConfig& clip) {
    const std::string prefix = "model.vision_model.";
    Add(prefix + "embeddings.class_embedding", {clip.width}, TensorRole::kEmbedding);
    AddConvolution(prefix + "embeddings.patch_embedding", clip.width, 3, clip.patch_px);
    Add(prefix + "embeddings.position_embedding.weight", {clip.positions, clip.width}, TensorRole::kPosition);
    AddLayerNorm(prefix + "pre_layrnorm", clip.width);
    for (int i = 0; i < clip.layers; ++i) {
      const std::string layer = prefix + "transformer.layers." + std::to_string(i) + ".";
      AddLayerNorm(layer + "layer_norm1", clip.width);
      AddBiased(layer + "self_attn.qkv_proj", 3 * clip.width, clip.width);
      AddBiased(layer + "self_attn.out_proj", clip.width, clip.width);
      AddLayerNorm(layer + "layer_norm2", clip.width);
      AddBiased(layer + "mlp.fc1", clip.mlp, clip.width);
      AddBiased(layer + "mlp.fc2", clip.width, clip.mlp);
    }
  }

  void ListEncoder(const EncoderConfig& encoder) {
    const std::string prefix = "model.qwen2_model.";
    const int q_width = encoder.heads * encoder.head_dim, kv_width = encoder.kv_heads * encoder.head_dim;
    Add(prefix + "query_768.weight", {encoder.queries_768, encoder.hidden}, TensorRole::kEmbedding);
    Add(prefix + "query_1024.weight", {encoder.queries_1024, encoder.hidden}, TensorRole::kEmbedding);
    for (int i = 0; i < encoder.layers; ++i) {
      const std::string layer = prefix + "model.model.layers." + std::to_string(i) + ".";
      AddRmsNorm(layer + "input_layernorm", encoder.hidden);
      AddBiased(layer + "self_attn.q_proj", q_width, encoder.hidden);
      AddBiased(layer + "self_attn.k_proj", kv_width, encoder.hidden);
      AddBiased(layer + "self_attn.v_proj", kv_width, encoder.hidden);
      AddProduct(layer + "self_attn.o_proj", encoder.hidden, q_width);
      AddRmsNorm(layer + "post_attention_layernorm", encoder.hidden);
      AddSwiGlu(layer + "mlp.", encoder.hidden, encoder.ffn);
    }
    AddRmsNorm(prefix + "model.model.norm", encoder.hidden);
  }

  void ListGlue() {
    AddBiased("model.projector.layers", config_.projector_out, config_.projector_in);
    if (config_.clip) Add("model.image_newline", {config_.lm.hidden}, TensorRole::kEmbedding);
    Add("model.view_seperator", {config_.lm.hidden}, TensorRole::kEmbedding);
  }

  void ListLanguageModel(const LmConfig& lm) {
    const int q_width = lm.heads * lm.head_dim, kv_width = lm.kv_heads * lm.head_dim;
    Add("model.embed_tokens.weight", {lm.vocab, lm.hidden}, TensorRole::kEmbedding);
    for (int i = 0; i < lm.layers; ++i) {
      const std::string layer = "model.layers." + std::to_string(i) + ".";
      AddRmsNorm(layer + "input_layernorm", lm.hidden);
      AddProduct(layer + "self_attn.q_proj", q_width, lm.hidden);
      AddProduct(layer + "self_attn.k_proj", kv_width, lm.hidden);
      AddProduct(layer + "self_attn.v_proj", kv_width, lm.hidden);
      AddProduct(layer + "self_attn.o_proj", lm.hidden, q_width);
      AddRmsNorm(layer + "post_attention_layernorm", lm.hidden);
      if (i < lm.dense_layers)
        AddSwiGlu(layer + "mlp.", lm.hidden, lm.dense_ffn);
      else
        ListExperts(lm, layer + "mlp.");
    }
    AddRmsNorm("model.norm", lm.hidden);
    AddProduct("lm_head", lm.vocab, lm.hidden);
  }

  void ListExperts(const LmConfig& lm, const std::string& mlp) {
    Add(mlp + "gate.weight", {lm.experts, lm.hidden}, TensorRole::kRouter);
    for (int i = 0; i < lm.experts; ++i) AddSwiGlu(mlp + "experts." + std::to_string(i) + ".", lm.hidden, lm.moe_ffn);
    if (lm.shared_experts > 0) AddSwiGlu(mlp + "shared_experts.", lm.hidden, lm.shared_experts * lm.moe_ffn);
  }

  const ModelConfig& config_;
  std::vector<ListedTensor> tensors_;
};

}  // namespace

std::vector<ListedTensor> TensorsOf(const ModelConfig& config) {
  return Lister(config).List();
}

}  // namespace quire
