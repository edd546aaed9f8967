#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/mmap_file.h"

namespace quire {
namespace {
namespace fs = std::filesystem;

constexpr std::string_view kOcr1Name = "DeepseekOCRForCausalLM";
constexpr std::string_view kOcr2Name = "DeepseekOCR2ForCausalLM";
constexpr const char* kConfigFile = "config.json";
constexpr const char* kProcessorFile = "processor_config.json";
constexpr int kVisionHeadDim = 64;  // of SAM, CLIP and the Qwen2 encoder where the config names no heads
constexpr int kLmHeadDim = 128;
constexpr Settings::Range kLayers{1, 1024};

void Require(bool holds, const std::string& where, const std::string& what) {
  if (!holds) throw Error(ErrorKind::kBadModel, what, where);
}

// "heads 10 and width 64"
std::string Numbers(const char* name, int value, const char* other_name, int other) {
  return std::string(name) + " " + std::to_string(value) + " and " + other_name + " " + std::to_string(other);
}

// The object at `path` inside root, nullptr when it is absent or null.
const Json* ObjectAt(const Json& root, std::initializer_list<std::string_view> path) {
  const Json* at = &root;
  std::string where = kConfigFile;
  for (const std::string_view key : path) {
    where += (where == kConfigFile ? ": " : ".") + std::string(key);
    at = at->Find(key);
    if (!at || at->is_null()) return nullptr;
    Require(at->is_object(), where, std::string("wanted an object, found ") + at->type_name());
  }
  return at;
}

Section SectionOf(const Json& root, std::initializer_list<std::string_view> path, bool also_root = false) {
  Section section{std::string(kConfigFile) + ": ", {}};
  for (const std::string_view key : path) section.path += (key == *path.begin() ? "" : ".") + std::string(key);
  if (const Json* object = ObjectAt(root, path)) section.objects.push_back(object);
  if (also_root) section.objects.push_back(&root);
  return section;
}

class ConfigReader {
 public:
  ConfigReader(const Json& root, const Json* processor, const TensorLookup& tensors)
      : root_(root), processor_(processor), tensors_(tensors), settings_(tensors) {}

  ModelConfig Read() {
    Require(root_.is_object(), kConfigFile, std::string("wanted an object, found ") + root_.type_name());
    config_ = PublishedConfig(ReadArchitecture());
    ReadLanguageModel();
    ReadSam();
    if (config_.clip) ReadClip(&*config_.clip);
    if (config_.encoder) ReadEncoder(&*config_.encoder);
    ReadProjector();
    ReadGeometry();
    if (const HostTensor* embedding = tensors_ ? tensors_("model.embed_tokens.weight") : nullptr)
      config_.stored_dtype = embedding->dtype;
    config_.settings = settings_.record();
    config_.notes = settings_.notes();
    return std::move(config_);
  }

 private:
  Architecture ReadArchitecture() const {
    const std::string where = std::string(kConfigFile) + ": architectures";
    const Json* names = root_.Find("architectures");
    const bool one = names && names->is_array() && names->as_array().size() == 1 && names->as_array()[0].is_string();
    Require(one, where, "wanted one architecture, found " + (names ? names->Dump() : "none"));
    const std::string& name = names->as_array()[0].as_string();
    if (name == kOcr1Name) return Architecture::kOcr1;
    if (name == kOcr2Name) return Architecture::kOcr2;
    throw Error(ErrorKind::kUnsupported,
                "wanted " + std::string(kOcr1Name) + " or " + std::string(kOcr2Name) + ", found " + name, where);
  }

  void ReadLanguageModel() {
    const Section section = SectionOf(root_, {"language_config"}, /*also_root=*/true);
    WantKnownLanguageModel(section);
    LmConfig& lm = config_.lm;
    const auto key = [&](const char* name) { return settings_.Key(section, name); };

    settings_.Read("lm.vocab", &lm.vocab, {settings_.Axis("model.embed_tokens.weight", 0), key("vocab_size")},
                   {1, 1 << 24});
    settings_.Read("lm.hidden", &lm.hidden, {settings_.Axis("model.embed_tokens.weight", 1), key("hidden_size")});
    settings_.Read("lm.layers", &lm.layers,
                   {key("num_hidden_layers"), settings_.Count("model.layers.", ".input_layernorm.weight")}, kLayers);

    const std::string attention = "model.layers.0.self_attn.";
    lm.heads = std::max(1, lm.hidden / kLmHeadDim);
    settings_.Read("lm.heads", &lm.heads, {key("num_attention_heads")});
    lm.head_dim = std::max(1, lm.hidden / lm.heads);
    settings_.Read("lm.head_dim", &lm.head_dim,
                   {settings_.Axis(attention + "q_proj.weight", 0, lm.heads), key("head_dim")});
    RequireEven(attention + "q_proj.weight", lm.head_dim);
    lm.kv_heads = lm.heads;
    settings_.Read("lm.kv_heads", &lm.kv_heads,
                   {settings_.Axis(attention + "k_proj.weight", 0, lm.head_dim), key("num_key_value_heads")});
    RequireWholeGroups(section, lm.heads, lm.kv_heads);

    settings_.Read("lm.dense_layers", &lm.dense_layers, {key("first_k_dense_replace")}, {0, lm.layers});
    if (lm.dense_layers > 0)
      settings_.Read("lm.dense_ffn", &lm.dense_ffn,
                     {settings_.Axis("model.layers.0.mlp.gate_proj.weight", 0), key("intermediate_size")});
    const std::string mlp = "model.layers." + std::to_string(lm.dense_layers) + ".mlp.";
    settings_.Read("lm.experts", &lm.experts, {settings_.Axis(mlp + "gate.weight", 0), key("n_routed_experts")});
    settings_.Read("lm.experts_per_token", &lm.experts_per_token, {key("num_experts_per_tok")});
    Require(lm.experts_per_token <= lm.experts, section.path + ".num_experts_per_tok",
            "wanted at most as many as there are, found " +
                Numbers("experts_per_token", lm.experts_per_token, "experts", lm.experts));
    settings_.Read("lm.moe_ffn", &lm.moe_ffn,
                   {settings_.Axis(mlp + "experts.0.gate_proj.weight", 0), key("moe_intermediate_size")});
    settings_.Read("lm.shared_experts", &lm.shared_experts,
                   {settings_.Axis(mlp + "shared_experts.gate_proj.weight", 0, lm.moe_ffn), key("n_shared_experts")},
                   {0, 1024});
    settings_.Read("lm.norm_topk_prob", &lm.norm_topk_prob, section, "norm_topk_prob");
    settings_.Read("lm.routed_scaling_factor", &lm.routed_scaling_factor, section, "routed_scaling_factor");
    settings_.Read("lm.max_positions", &lm.max_positions, {key("max_position_embeddings")}, {1, 1 << 24});
    settings_.Read("lm.rms_eps", &lm.rms_eps, section, "rms_norm_eps");
    // transformers 5 writes the rotary positions' settings into an object of their own.
    Section rope = section;
    for (const Json* object : section.objects)
      if (const Json* inner = object->Find("rope_parameters")) rope.objects.push_back(inner);
    settings_.Want(rope, "rope_type", "default");
    settings_.Read("lm.rope_theta", &lm.rope_theta, rope, "rope_theta");
    settings_.Read("lm.bos_id", &lm.bos_id, {key("bos_token_id")}, {0, lm.vocab - 1});
    settings_.Read("lm.eos_id", &lm.eos_id, {key("eos_token_id")}, {0, lm.vocab - 1});
  }

  // Relatives of the language model that share its layout and compute something else.
  void WantKnownLanguageModel(const Section& section) const {
    settings_.Want(section, "use_mla", false);
    settings_.Want(section, "scoring_func", "softmax");
    settings_.Want(section, "topk_method", "greedy");
    settings_.Want(section, "hidden_act", "silu");
    settings_.Want(section, "rope_scaling", nullptr);
    settings_.Want(section, "attention_bias", false);
    settings_.Want(section, "tie_word_embeddings", false);
    settings_.Want(section, "moe_layer_freq", 1);
    settings_.Want(section, "sliding_window", nullptr);
    settings_.Want(section, "sliding_window_size", nullptr);
    settings_.Want(section, "quantization_config", nullptr);
  }

  void ReadSam() {
    const Section section = SectionOf(root_, {"vision_config", "width", "sam_vit_b"});
    SamConfig& sam = config_.sam;
    const std::string prefix = "model.sam_model.";
    const auto axis = [&](const char* tensor, int i) { return settings_.Axis(prefix + tensor, i); };
    const auto key = [&](const char* name) { return settings_.Key(section, name); };

    settings_.Want(section, "use_rel_pos", true);
    settings_.Want(section, "qkv_bias", true);
    settings_.Read("sam.width", &sam.width, {axis("patch_embed.proj.weight", 0), key("width")});
    settings_.Read("sam.patch_px", &sam.patch_px, {axis("patch_embed.proj.weight", 2), key("patch_size")}, {1, 1024});
    settings_.Read("sam.layers", &sam.layers, {key("layers"), settings_.Count(prefix + "blocks.", ".norm1.weight")},
                   kLayers);
    sam.heads = std::max(1, sam.width / kVisionHeadDim);
    settings_.Read("sam.heads", &sam.heads, {key("heads")});
    RequireWholeHeads(section, sam.width, sam.heads);
    settings_.Read("sam.mlp", &sam.mlp, {axis("blocks.0.mlp.lin1.weight", 0), key("mlp_dim")});
    settings_.Read("sam.grid", &sam.grid, {axis("pos_embed", 1)}, {1, 4096});
    sam.image_px = sam.grid * sam.patch_px;
    settings_.Read("sam.global_layers", &sam.global_layers, section, "global_attn_indexes");
    for (const int layer : sam.global_layers)
      Require(layer < sam.layers, section.path + ".global_attn_indexes",
              "wanted numbers below sam.layers " + std::to_string(sam.layers) + ", found " + std::to_string(layer));
    settings_.Read("sam.window", &sam.window, {WindowOfTables(), key("window_size")}, {1, 4096});
    settings_.Read("sam.neck", &sam.neck, {axis("neck.0.weight", 0), key("out_channels")});
    settings_.Read("sam.net2", &sam.net2, {axis("net_2.weight", 0), settings_.Item(section, "downsample_channels", 0)});
    // The published V2 says 1024 here and has a tensor of 896.
    settings_.Read("sam.out", &sam.out, {axis("net_3.weight", 0), settings_.Item(section, "downsample_channels", 1)});
    settings_.Read("sam.eps", &sam.eps, section, "layer_norm_eps");
  }

  // The relative positions of a block of windows have 2 * window - 1 rows.
  std::optional<Settings::Candidate> WindowOfTables() const {
    const std::vector<int>& global = config_.sam.global_layers;
    for (int layer = 0; layer < config_.sam.layers; ++layer) {
      if (std::ranges::find(global, layer) != global.end()) continue;
      auto rows = settings_.Axis("model.sam_model.blocks." + std::to_string(layer) + ".attn.rel_pos_h", 0);
      if (rows) rows->value = (rows->value + 1) / 2;
      return rows;
    }
    return std::nullopt;
  }

  void ReadClip(ClipConfig* clip) {
    const Section section = SectionOf(root_, {"vision_config", "width", "clip-l-14-224"});
    const std::string prefix = "model.vision_model.";
    const std::string layers = prefix + "transformer.layers.";
    const auto key = [&](const char* name) { return settings_.Key(section, name); };

    settings_.Read("clip.width", &clip->width,
                   {settings_.Axis(prefix + "embeddings.class_embedding", 0), key("width")});
    settings_.Read("clip.layers", &clip->layers, {key("layers"), settings_.Count(layers, ".layer_norm1.weight")},
                   kLayers);
    clip->heads = std::max(1, clip->width / kVisionHeadDim);
    settings_.Read("clip.heads", &clip->heads, {key("heads")});
    RequireWholeHeads(section, clip->width, clip->heads);
    clip->mlp = 4 * clip->width;
    settings_.Read("clip.mlp", &clip->mlp, {settings_.Axis(layers + "0.mlp.fc1.weight", 0), key("mlp_dim")});
    settings_.Read("clip.patch_px", &clip->patch_px,
                   {settings_.Axis(prefix + "embeddings.patch_embedding.weight", 2), key("patch_size")}, {1, 1024});
    const std::string positions = prefix + "embeddings.position_embedding.weight";
    settings_.Read("clip.positions", &clip->positions, {settings_.Axis(positions, 0)}, {2, 1 << 20});
    const int side = static_cast<int>(std::lround(std::sqrt(clip->positions - 1)));
    Require(side * side == clip->positions - 1, positions,
            "wanted rows for a class token and a square grid, found " + std::to_string(clip->positions));
    settings_.Read("clip.eps", &clip->eps, section, "layer_norm_eps");
    Require(
        clip->width == config_.sam.out, "model.sam_model.net_3.weight",
        "wanted CLIP's tokens to be SAM's, found " + Numbers("sam.out", config_.sam.out, "clip.width", clip->width));
  }

  void ReadEncoder(EncoderConfig* encoder) {
    const Section section = SectionOf(root_, {"vision_config", "width", "qwen2-0-5b"});
    const std::string prefix = "model.qwen2_model.";
    const std::string layers = prefix + "model.model.layers.";
    const std::string attention = layers + "0.self_attn.";
    const auto key = [&](const char* name) { return settings_.Key(section, name); };

    settings_.Want(section, "qkv_bias", true);
    settings_.Want(section, "hidden_act", "silu");
    settings_.Read("encoder.hidden", &encoder->hidden, {settings_.Axis(prefix + "query_1024.weight", 1), key("dim")});
    settings_.Read("encoder.queries_768", &encoder->queries_768,
                   {settings_.Axis(prefix + "query_768.weight", 0), key("queries_768")});
    settings_.Read("encoder.queries_1024", &encoder->queries_1024,
                   {settings_.Axis(prefix + "query_1024.weight", 0), key("queries_1024")});
    settings_.Read("encoder.layers", &encoder->layers,
                   {key("layers"), settings_.Count(layers, ".input_layernorm.weight")}, kLayers);
    encoder->heads = std::max(1, encoder->hidden / kVisionHeadDim);
    settings_.Read("encoder.heads", &encoder->heads, {key("heads")});
    encoder->head_dim = std::max(1, encoder->hidden / encoder->heads);
    settings_.Read("encoder.head_dim", &encoder->head_dim,
                   {settings_.Axis(attention + "q_proj.weight", 0, encoder->heads), key("head_dim")});
    RequireEven(attention + "q_proj.weight", encoder->head_dim);
    settings_.Read("encoder.kv_heads", &encoder->kv_heads,
                   {settings_.Axis(attention + "k_proj.weight", 0, encoder->head_dim), key("kv_heads")});
    RequireWholeGroups(section, encoder->heads, encoder->kv_heads);
    settings_.Read("encoder.ffn", &encoder->ffn,
                   {settings_.Axis(layers + "0.mlp.gate_proj.weight", 0), key("intermediate_size")});
    settings_.Read("encoder.rms_eps", &encoder->rms_eps, section, "rms_norm_eps");
    settings_.Read("encoder.rope_theta", &encoder->rope_theta, section, "rope_theta");
    Require(encoder->hidden == config_.sam.out, "model.sam_model.net_3.weight",
            "wanted the encoder's image tokens to be SAM's, found " +
                Numbers("sam.out", config_.sam.out, "encoder.hidden", encoder->hidden));
  }

  void ReadProjector() {
    const Section section = SectionOf(root_, {"projector_config"});
    const std::string tensor = "model.projector.layers.weight";
    settings_.Want(section, "projector_type", "linear");
    settings_.Read("projector.in", &config_.projector_in,
                   {settings_.Axis(tensor, 1), settings_.Key(section, "input_dim")});
    settings_.Read("projector.out", &config_.projector_out,
                   {settings_.Axis(tensor, 0), settings_.Key(section, "n_embed")});
    const int features = config_.clip ? config_.clip->width + config_.sam.out : config_.encoder->hidden;
    Require(config_.projector_in == features, tensor,
            "wanted the features of the vision part, found " +
                Numbers("projector.in", config_.projector_in, "features", features));
    Require(config_.projector_out == config_.lm.hidden, tensor,
            "wanted the width of the language model, found " +
                Numbers("projector.out", config_.projector_out, "lm.hidden", config_.lm.hidden));
  }

  // The published processor_config.json leaves the sizes to the code; other models may state them.
  void ReadGeometry() {
    Section section{std::string(kProcessorFile) + ": ", {}};
    if (processor_) {
      Require(processor_->is_object(), kProcessorFile,
              std::string("wanted an object, found ") + processor_->type_name());
      section.objects.push_back(processor_);
    }
    const Json half(Json::Array{0.5, 0.5, 0.5});
    settings_.Want(section, "image_mean", half);
    settings_.Want(section, "image_std", half);
    settings_.Want(section, "normalize", true);
    settings_.Want(section, "downsample_ratio", config_.geometry.downsample);

    Geometry& geometry = config_.geometry;
    constexpr Settings::Range kSides{1, 8192}, kTiles{1, 64};
    geometry.patch_px = config_.sam.patch_px;
    settings_.Read("geometry.base_px", &geometry.base_px, {settings_.Key(section, "base_size")}, kSides);
    settings_.Read("geometry.tile_px", &geometry.tile_px, {settings_.Key(section, "image_size")}, kSides);
    settings_.Read("geometry.min_tiles", &geometry.min_tiles, {settings_.Key(section, "min_crops")}, kTiles);
    settings_.Read("geometry.max_tiles", &geometry.max_tiles, {settings_.Key(section, "max_crops")},
                   {geometry.min_tiles, kTiles.most});
    RequireTokens("base_size", geometry.base_px, config_.encoder ? config_.encoder->queries_1024 : 0);
    RequireTokens("image_size", geometry.tile_px, config_.encoder ? config_.encoder->queries_768 : 0);
  }

  // A view is a square of whole image tokens; the encoder has a query for each of them (queries 0: it has none).
  void RequireTokens(const char* key, int side_px, int queries) const {
    const std::string where = std::string(kProcessorFile) + ": " + key;
    const int token_px = config_.geometry.patch_px * config_.geometry.downsample;
    Require(side_px % token_px == 0, where,
            "wanted a multiple of " + std::to_string(token_px) + " pixels, found " + std::to_string(side_px));
    const int tokens = side_px / token_px * (side_px / token_px);
    Require(queries == 0 || tokens == queries, where,
            "wanted a view of as many tokens as the encoder has queries, found " +
                Numbers("tokens", tokens, "queries", queries));
  }

  static void RequireWholeHeads(const Section& section, int width, int heads) {
    Require(width % heads == 0, section.path + ".heads",
            "wanted a width of whole heads, found " + Numbers("width", width, "heads", heads));
  }
  static void RequireWholeGroups(const Section& section, int heads, int kv_heads) {
    Require(heads % kv_heads == 0, section.path,
            "wanted whole groups of heads, found " + Numbers("heads", heads, "kv heads", kv_heads));
  }
  static void RequireEven(const std::string& tensor, int head_dim) {
    Require(head_dim % 2 == 0, tensor,
            "wanted heads of an even width for the rotary positions, found " + std::to_string(head_dim));
  }

  const Json& root_;
  const Json* processor_;
  const TensorLookup& tensors_;
  Settings settings_;
  ModelConfig config_;
};

Json ReadJson(const fs::path& path) {
  try {
    return Json::Parse(ReadFile(path.string(), 64 << 20), path.string());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBadInput) throw;
    throw Error(ErrorKind::kBadModel, error.message(), error.where());
  }
}

}  // namespace

ModelConfig PublishedConfig(Architecture architecture) {
  ModelConfig config;
  config.architecture = config.geometry.architecture = architecture;
  if (architecture == Architecture::kOcr2) {
    config.encoder.emplace();
    return config;
  }
  config.architecture_name = kOcr1Name;
  config.clip.emplace();
  config.sam.out = 1024;
  config.projector_in = 2048;
  config.geometry.tile_px = 640;
  return config;
}

ModelConfig ReadConfig(const Json& config, const Json* processor, const TensorLookup& tensors) {
  return ConfigReader(config, processor, tensors).Read();
}

ModelConfig LoadConfig(const Checkpoint& checkpoint) {
  const fs::path given(checkpoint.path());
  std::error_code ignored;
  const fs::path folder = fs::is_directory(given, ignored) ? given : given.parent_path();
  const Json config = ReadJson(folder / kConfigFile);
  const bool has_processor = fs::exists(folder / kProcessorFile, ignored);
  const Json processor = has_processor ? ReadJson(folder / kProcessorFile) : Json();
  try {
    return ReadConfig(config, has_processor ? &processor : nullptr,
                      [&](std::string_view name) { return checkpoint.Find(name); });
  } catch (const Error& error) {
    throw error.Within(folder.string());
  }
}

}  // namespace quire
