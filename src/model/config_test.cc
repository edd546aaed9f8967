// The published configs give the published numbers; a config that lies is an Error, whatever the lie.
#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/mmap_file.h"
#include "model/tensor_list.h"

namespace quire {
namespace {
using testing::HasSubstr;

Json ReadData(const std::string& name) {
  const std::string path = std::string(QUIRE_SOURCE_DIR) + "/tests/data/model/" + name;
  return Json::Parse(ReadFile(path), path);
}

// The tensors of a model as a checkpoint holds them, without their data.
class Tensors {
 public:
  explicit Tensors(const ModelConfig& config) {
    for (const ListedTensor& listed : TensorsOf(config)) by_name_[listed.tensor.name] = listed.tensor;
  }
  HostTensor& operator[](const std::string& name) { return by_name_.at(name); }
  void Remove(const std::string& name) { by_name_.erase(name); }
  size_t size() const { return by_name_.size(); }
  TensorLookup lookup() const {
    return [this](std::string_view name) {
      const auto found = by_name_.find(name);
      return found == by_name_.end() ? nullptr : &found->second;
    };
  }

 private:
  std::map<std::string, HostTensor, std::less<>> by_name_;
};

// Every number of a config as text, for comparing two of them.
std::map<std::string, std::string> Numbers(const ModelConfig& config) {
  std::map<std::string, std::string> numbers;
  for (const Setting& setting : config.settings) numbers[setting.name] = setting.value.Dump();
  return numbers;
}

const Setting& Find(const ModelConfig& config, const std::string& name) {
  const auto found = std::ranges::find(config.settings, name, &Setting::name);
  if (found == config.settings.end()) throw std::out_of_range(name);
  return *found;
}

TEST(Config, PublishedOcr1) {
  const Tensors tensors(PublishedConfig(Architecture::kOcr1));
  const Json processor = ReadData("processor_config.json");
  const ModelConfig config = ReadConfig(ReadData("deepseek-ocr.config.json"), &processor, tensors.lookup());
  EXPECT_EQ(config.architecture, Architecture::kOcr1);
  EXPECT_EQ(config.geometry.architecture, Architecture::kOcr1);
  EXPECT_EQ(config.architecture_name, "DeepseekOCRForCausalLM");
  EXPECT_FALSE(config.encoder);
  ASSERT_TRUE(config.clip);
  EXPECT_EQ(config.clip->layers, 24);
  EXPECT_EQ(config.clip->positions, 257);
  EXPECT_EQ(config.clip->mlp, 4096);
  EXPECT_FLOAT_EQ(config.clip->eps, 1e-5f);
  EXPECT_EQ(config.sam.out, 1024);
  EXPECT_EQ(config.projector_in, 2048);
  EXPECT_EQ(config.geometry.tile_px, 640);
  EXPECT_EQ(config.geometry.max_tiles, 6);
  EXPECT_THAT(config.notes, testing::IsEmpty());
}

TEST(Config, PublishedOcr2) {
  const Tensors tensors(PublishedConfig(Architecture::kOcr2));
  const ModelConfig config = ReadConfig(ReadData("deepseek-ocr-2.config.json"), nullptr, tensors.lookup());
  EXPECT_EQ(config.architecture, Architecture::kOcr2);
  EXPECT_FALSE(config.clip);
  ASSERT_TRUE(config.encoder);
  EXPECT_EQ(config.encoder->heads, 14);
  EXPECT_EQ(config.encoder->kv_heads, 2);
  EXPECT_EQ(config.encoder->head_dim, 64);
  EXPECT_EQ(config.encoder->ffn, 4864);
  EXPECT_FLOAT_EQ(config.encoder->rope_theta, 1e6f);
  EXPECT_EQ(config.lm.head_dim, 128);
  EXPECT_EQ(config.lm.shared_experts, 2);
  EXPECT_FLOAT_EQ(config.lm.rms_eps, 1e-6f);
  EXPECT_FLOAT_EQ(config.lm.rope_theta, 10000.0f);
  EXPECT_EQ(config.sam.image_px, 1024);
  EXPECT_EQ(config.sam.out, 896);
  EXPECT_EQ(config.geometry.tile_px, 768);
  // Its downsample_channels contradict its net_3.
  EXPECT_THAT(config.notes, testing::ElementsAre(HasSubstr("sam.out is 896 by model.sam_model.net_3.weight")));

  EXPECT_EQ(Find(config, "sam.out").origin, Origin::kTensor);
  EXPECT_EQ(Find(config, "lm.layers").origin, Origin::kConfig);
  EXPECT_EQ(Find(config, "lm.layers").from, "config.json: language_config.num_hidden_layers");
  EXPECT_EQ(Find(config, "lm.rms_eps").origin, Origin::kPublished);
  EXPECT_EQ(Find(config, "lm.rms_eps").value.Dump(), "1e-06");
}

// What the config leaves out, the published code holds: both ways give the same numbers.
TEST(Config, AnEmptyConfigIsThePublishedModel) {
  for (const auto& [architecture, file] : {std::pair(Architecture::kOcr1, "deepseek-ocr.config.json"),
                                           {Architecture::kOcr2, "deepseek-ocr-2.config.json"}}) {
    const Tensors tensors(PublishedConfig(architecture));
    const Json full = ReadData(file);
    const Json bare = Json::Object{{"architectures", full.At("architectures")}};
    const auto wanted = Numbers(ReadConfig(full, nullptr, tensors.lookup()));
    EXPECT_EQ(Numbers(ReadConfig(bare, nullptr, tensors.lookup())), wanted);
    EXPECT_EQ(Numbers(ReadConfig(bare, nullptr, nullptr)), wanted);
  }
}

TEST(Config, PublishedTensors) {
  const auto elements = [](Architecture architecture) {
    int64_t sum = 0;
    for (const ListedTensor& listed : TensorsOf(PublishedConfig(architecture))) sum += listed.tensor.elements();
    return sum;
  };
  EXPECT_EQ(Tensors(PublishedConfig(Architecture::kOcr1)).size(), 2710u);
  EXPECT_EQ(Tensors(PublishedConfig(Architecture::kOcr2)).size(), 2707u);
  EXPECT_EQ(elements(Architecture::kOcr1), 3336106240);
  EXPECT_EQ(elements(Architecture::kOcr2), 3389119360);
}

TEST(Config, SmallModels) {
  const Json processor = ReadData("tiny-ocr2.processor_config.json");
  const ModelConfig two = ReadConfig(ReadData("tiny-ocr2.config.json"), &processor, nullptr);
  EXPECT_EQ(two.lm.hidden, 256);
  EXPECT_EQ(two.lm.head_dim, 64);
  EXPECT_EQ(two.lm.experts, 8);
  EXPECT_EQ(two.sam.width, 192);
  EXPECT_EQ(two.sam.neck, 128);
  EXPECT_EQ(two.sam.net2, 192);
  EXPECT_EQ(two.sam.global_layers, (std::vector<int>{2, 5}));
  EXPECT_EQ(two.encoder->kv_heads, 2);
  EXPECT_EQ(two.geometry.max_tiles, 6);
  EXPECT_EQ(Find(two, "geometry.tile_px").from, "processor_config.json: image_size");
  EXPECT_THAT(two.notes, testing::IsEmpty());

  ModelConfig wanted = PublishedConfig(Architecture::kOcr1);
  wanted.lm = {.layers = 3,
               .hidden = 128,
               .heads = 2,
               .kv_heads = 2,
               .head_dim = 64,
               .dense_ffn = 192,
               .experts = 12,
               .moe_ffn = 32,
               .vocab = 1024};
  wanted.sam.layers = 3;
  wanted.sam.width = 64;
  wanted.sam.heads = 1;
  wanted.sam.mlp = 256;
  wanted.sam.global_layers = {1};
  wanted.sam.neck = 16;
  wanted.sam.net2 = 24;
  wanted.sam.out = 64;
  wanted.clip = ClipConfig{.layers = 2, .width = 64, .heads = 1, .mlp = 128};
  wanted.projector_in = wanted.projector_out = 128;
  const Tensors tensors(wanted);
  const ModelConfig one = ReadConfig(ReadData("tiny-ocr1.config.json"), nullptr, tensors.lookup());
  EXPECT_EQ(one.sam.neck, 16);
  EXPECT_EQ(one.sam.window, 14);
  EXPECT_EQ(one.clip->mlp, 128);
  EXPECT_EQ(one.clip->heads, 1);
  EXPECT_EQ(one.lm.shared_experts, 2);
  EXPECT_THAT(one.notes, testing::IsEmpty());
}

class HostileConfig : public testing::Test {
 protected:
  HostileConfig() : tensors_(PublishedConfig(Architecture::kOcr2)), config_(ReadData("deepseek-ocr-2.config.json")) {}

  static Json& Member(Json* at, const std::string& key) {
    return at->Set(key, at->Find(key) ? *at->Find(key) : Json(Json::Object()));
  }
  // The published config with one value replaced; path in dots.
  Json With(const std::string& path, const Json& value) const {
    Json config = config_;
    Replace(&config, path, value);
    return config;
  }
  static void Replace(Json* at, const std::string& path, const Json& value) {
    const size_t dot = path.find('.');
    if (dot == std::string::npos)
      at->Set(path, value);
    else
      Replace(&Member(at, path.substr(0, dot)), path.substr(dot + 1), value);
  }
  std::string Fail(const Json& config, ErrorKind kind = ErrorKind::kBadModel, const Json* processor = nullptr) const {
    try {
      ReadConfig(config, processor, tensors_.lookup());
    } catch (const Error& error) {
      EXPECT_EQ(Info(error.kind()).name, Info(kind).name) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "no Error";
    return "";
  }

  Tensors tensors_;
  Json config_;
};

TEST_F(HostileConfig, RelativesAreRefusedByName) {
  const std::pair<const char*, Json> cases[] = {
      {"use_mla", true},
      {"scoring_func", "sigmoid"},
      {"topk_method", "noaux_tc"},
      {"topk_method", "group_limited_greedy"},
      {"hidden_act", "gelu"},
      {"rope_scaling", Json::Object{{"type", "yarn"}}},
      {"rope_parameters", Json::Object{{"rope_type", "yarn"}}},
      {"attention_bias", true},
      {"tie_word_embeddings", true},
      {"moe_layer_freq", 2},
      {"sliding_window_size", 128},
      {"quantization_config", Json::Object{{"quant_method", "fp8"}}},
  };
  for (const auto& [key, value] : cases)
    for (const std::string place : {"", "language_config."})
      EXPECT_THAT(Fail(With(place + key, value), ErrorKind::kUnsupported), HasSubstr("config.json: language_config."))
          << key;
  for (const char* path : {"vision_config.width.qwen2-0-5b.qkv_bias", "vision_config.width.sam_vit_b.use_rel_pos"})
    EXPECT_THAT(Fail(With(path, false), ErrorKind::kUnsupported), HasSubstr(path));
  EXPECT_THAT(Fail(With("projector_config.projector_type", "mlp_gelu"), ErrorKind::kUnsupported),
              HasSubstr("wanted \"linear\", found \"mlp_gelu\""));
  EXPECT_THAT(Fail(With("architectures", Json::Array{"UnlimitedOCRForCausalLM"}), ErrorKind::kUnsupported),
              HasSubstr("found UnlimitedOCRForCausalLM"));
}

TEST_F(HostileConfig, KnownConstantsOfRelativesAreTaken) {
  const auto read = [&](const Json& config) { return ReadConfig(config, nullptr, tensors_.lookup()).lm; };
  EXPECT_FLOAT_EQ(read(With("language_config.rope_theta", 1e6)).rope_theta, 1e6f);
  EXPECT_FLOAT_EQ(read(With("rope_parameters", Json::Object{{"rope_theta", 5e5}, {"rope_type", "default"}})).rope_theta,
                  5e5f);
  EXPECT_FLOAT_EQ(read(With("routed_scaling_factor", 2.5)).routed_scaling_factor, 2.5f);
  EXPECT_TRUE(read(With("norm_topk_prob", true)).norm_topk_prob);
  EXPECT_EQ(read(With("max_position_embeddings", 32768)).max_positions, 8192);  // language_config is believed
}

TEST_F(HostileConfig, ArchitecturesMustBeOneName) {
  for (const Json& value : {Json(), Json(1), Json("DeepseekOCR2ForCausalLM"), Json(Json::Array()), Json(Json::Array{3}),
                            Json(Json::Array{"DeepseekOCR2ForCausalLM", "x"})})
    EXPECT_THAT(Fail(With("architectures", value)), HasSubstr("wanted one architecture")) << value.Dump();
  EXPECT_THAT(Fail(Json::Array{config_}), HasSubstr("wanted an object, found an array"));
}

// Every number of the file in turn becomes something that it cannot be.
TEST_F(HostileConfig, EveryKeyRefusesNonsense) {
  const char* counts[] = {"language_config.vocab_size",
                          "language_config.hidden_size",
                          "language_config.num_hidden_layers",
                          "language_config.num_attention_heads",
                          "language_config.head_dim",
                          "language_config.num_key_value_heads",
                          "language_config.intermediate_size",
                          "language_config.n_routed_experts",
                          "language_config.num_experts_per_tok",
                          "language_config.moe_intermediate_size",
                          "language_config.max_position_embeddings",
                          "vision_config.width.sam_vit_b.width",
                          "vision_config.width.sam_vit_b.layers",
                          "vision_config.width.sam_vit_b.heads",
                          "vision_config.width.sam_vit_b.mlp_dim",
                          "vision_config.width.sam_vit_b.window_size",
                          "vision_config.width.qwen2-0-5b.dim",
                          "vision_config.width.qwen2-0-5b.layers",
                          "vision_config.width.qwen2-0-5b.heads",
                          "vision_config.width.qwen2-0-5b.kv_heads",
                          "projector_config.input_dim",
                          "projector_config.n_embed"};
  const Json nonsense[] = {"12", true, Json::Array{12}, Json::Object{}, 0, -1, 1.5, int64_t{1} << 40, 1e300};
  for (const char* path : counts)
    for (const Json& value : nonsense) EXPECT_THAT(Fail(With(path, value)), HasSubstr(path)) << value.Dump();

  const char* lengths[] = {"language_config.rms_norm_eps", "language_config.rope_theta",
                           "language_config.routed_scaling_factor", "vision_config.width.sam_vit_b.layer_norm_eps",
                           "vision_config.width.qwen2-0-5b.rope_theta"};
  for (const char* path : lengths)
    for (const Json& value : {Json("1"), Json(0), Json(-1e-6), Json(1e300), Json(1e-300), Json(Json::Array())})
      EXPECT_THAT(Fail(With(path, value)), HasSubstr(path)) << value.Dump();

  const char* objects[] = {"language_config",
                           "vision_config",
                           "vision_config.width",
                           "vision_config.width.sam_vit_b",
                           "vision_config.width.qwen2-0-5b",
                           "projector_config"};
  for (const char* path : objects)
    EXPECT_THAT(Fail(With(path, 3)), HasSubstr(std::string(path) + ": wanted an object, found an integer"));

  const std::string global = "vision_config.width.sam_vit_b.global_attn_indexes";
  for (const Json& value : {Json(3), Json(Json::Array{-1}), Json(Json::Array{12}), Json(Json::Array{"2"})})
    EXPECT_THAT(Fail(With(global, value)), HasSubstr(global)) << value.Dump();
  EXPECT_THAT(Fail(With("language_config.norm_topk_prob", 1)), HasSubstr("wanted a boolean"));
  EXPECT_THAT(Fail(With("language_config.eos_token_id", 129280)), HasSubstr("from 0 to 129279"));
  EXPECT_THAT(Fail(With("language_config.first_k_dense_replace", 13)), HasSubstr("from 0 to 12"));
}

TEST_F(HostileConfig, NumbersMustFitTogether) {
  EXPECT_THAT(Fail(With("language_config.num_experts_per_tok", 65)), HasSubstr("experts_per_token 65 and experts 64"));
  EXPECT_THAT(Fail(With("language_config.num_attention_heads", 7)), HasSubstr("a multiple of 7, found [1280, 1280]"));
  EXPECT_THAT(Fail(With("language_config.num_attention_heads", 256)), HasSubstr("even width"));
  EXPECT_THAT(Fail(With("vision_config.width.sam_vit_b.heads", 5)), HasSubstr("width 768 and heads 5"));
}

TEST_F(HostileConfig, TensorsMustFitTogether) {
  const auto fails = [&](const char* name, const Shape& shape) {
    Tensors changed = tensors_;
    changed[name].shape = shape;
    std::swap(changed, tensors_);
    const std::string text = Fail(config_);
    std::swap(changed, tensors_);
    return text;
  };
  EXPECT_THAT(fails("model.embed_tokens.weight", {129280}), HasSubstr("more than 1 axes, found [129280]"));
  EXPECT_THAT(fails("model.embed_tokens.weight", {0, 1280}), HasSubstr("wanted lm.vocab from 1"));
  EXPECT_THAT(fails("model.layers.0.self_attn.k_proj.weight", {384, 1280}), HasSubstr("heads 10 and kv heads 3"));
  EXPECT_THAT(fails("model.layers.1.mlp.shared_experts.gate_proj.weight", {1000, 1280}),
              HasSubstr("a multiple of 896"));
  EXPECT_THAT(fails("model.sam_model.net_3.weight", {1024, 512, 3, 3}),
              HasSubstr("sam.out 1024 and encoder.hidden 896"));
  EXPECT_THAT(fails("model.projector.layers.weight", {1280, 1000}), HasSubstr("projector.in 1000 and features 896"));
  EXPECT_THAT(fails("model.projector.layers.weight", {1000, 896}), HasSubstr("projector.out 1000 and lm.hidden 1280"));
  EXPECT_THAT(fails("model.qwen2_model.query_768.weight", {100, 896}), HasSubstr("tokens 144 and queries 100"));
}

TEST_F(HostileConfig, ProcessorConfig) {
  const auto fails = [&](const char* key, const Json& value, ErrorKind kind = ErrorKind::kBadModel) {
    const Json processor = Json::Object{{key, value}};
    return Fail(config_, kind, &processor);
  };
  EXPECT_THAT(fails("image_size", 640), HasSubstr("tokens 100 and queries 144"));
  EXPECT_THAT(fails("image_size", 770), HasSubstr("a multiple of 64 pixels, found 770"));
  EXPECT_THAT(fails("base_size", "1024"), HasSubstr("processor_config.json: base_size: wanted an integer"));
  EXPECT_THAT(fails("max_crops", 1), HasSubstr("wanted geometry.max_tiles from 2 to 64"));
  EXPECT_THAT(fails("max_crops", 1000000), HasSubstr("found 1000000"));
  EXPECT_THAT(fails("downsample_ratio", 2, ErrorKind::kUnsupported), HasSubstr("wanted 4, found 2"));
  EXPECT_THAT(fails("image_mean", Json::Array{0.4, 0.5, 0.5}, ErrorKind::kUnsupported), HasSubstr("image_mean"));
  const Json list = Json::Array{};
  EXPECT_THAT(Fail(config_, ErrorKind::kBadModel, &list), HasSubstr("processor_config.json: wanted an object"));
}

}  // namespace
}  // namespace quire
