// The numbers of a model: architecture, widths, constants. Source: model.md 1 (config.json and the published code).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/geometry.h"
#include "model/settings.h"
#include "weights/checkpoint.h"

namespace quire {

// Defaults are the published full-size models'. Widths are in elements.

// The language model: a decoder with a mixture of experts (configuration_deepseek_v2.py).
struct LmConfig {
  int layers = 12;
  int hidden = 1280;
  int heads = 10;
  int kv_heads = 10;
  int head_dim = 128;
  int dense_layers = 1;  // the first of the layers; the others have experts
  int dense_ffn = 6848;
  int experts = 64;
  int experts_per_token = 6;
  int moe_ffn = 896;
  int shared_experts = 2;  // one SwiGLU of width shared_experts * moe_ffn; may be 0
  int vocab = 129280;      // rows of the embedding, more than the tokenizer has
  int max_positions = 8192;
  bool norm_topk_prob = false;
  float routed_scaling_factor = 1.0f;
  float rms_eps = 1e-6f;
  float rope_theta = 10000.0f;
  int bos_id = 0;
  int eos_id = 1;
};

// The vision transformer of windows, SAM ViT-B, with its neck (sam_vary_sdpa.py).
struct SamConfig {
  int layers = 12;
  int width = 768;
  int heads = 12;
  int mlp = 3072;
  int window = 14;  // side of a window in patches
  int patch_px = 16;
  int grid = 64;        // side of the position table in patches
  int image_px = 1024;  // grid * patch_px
  std::vector<int> global_layers = {2, 5, 8, 11};
  int neck = 256;
  int net2 = 512;
  int out = 896;  // V1: 1024
  float eps = 1e-6f;
};

// V1: CLIP-L over SAM's output (clip_sdpa.py).
struct ClipConfig {
  int layers = 24;
  int width = 1024;
  int heads = 16;
  int mlp = 4096;
  int patch_px = 14;    // of a convolution that is stored and never used
  int positions = 257;  // rows of the position table: the class token and a square grid
  float eps = 1e-5f;
};

// V2: Qwen2 layers over image tokens and learned queries (qwen2_d2e.py).
struct EncoderConfig {
  int layers = 24;
  int hidden = 896;
  int heads = 14;
  int kv_heads = 2;
  int head_dim = 64;
  int ffn = 4864;
  int queries_768 = 144;
  int queries_1024 = 256;
  float rms_eps = 1e-6f;
  float rope_theta = 1000000.0f;
};

struct ModelConfig {
  Architecture architecture = Architecture::kOcr2;
  std::string architecture_name = "DeepseekOCR2ForCausalLM";
  LmConfig lm;
  SamConfig sam;
  std::optional<ClipConfig> clip;        // V1
  std::optional<EncoderConfig> encoder;  // V2
  int projector_in = 896;
  int projector_out = 1280;
  Geometry geometry;
  DType stored_dtype = DType::kBf16;  // of the embedding

  std::vector<Setting> settings;   // every number above and where it comes from
  std::vector<std::string> notes;  // contradictions that were decided; for the user
};

// The published full-size model.
ModelConfig PublishedConfig(Architecture architecture);

// config: config.json. processor: processor_config.json or nullptr. tensors: of the checkpoint; may find nothing.
// A number comes from the tensor's shape, else from the config, else from the published code (model.md 1.3).
// Throws Error{kBadModel} naming the key or tensor, {kUnsupported} for a relative of these models that is not built.
ModelConfig ReadConfig(const Json& config, const Json* processor, const TensorLookup& tensors);

// Reads config.json and, if there is one, processor_config.json beside the checkpoint's files.
ModelConfig LoadConfig(const Checkpoint& checkpoint);

}  // namespace quire
