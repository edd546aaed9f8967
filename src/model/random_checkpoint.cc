#include "model/random_checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/utf8.h"
#include "model/random_tensor.h"
#include "weights/safetensors_writer.h"

namespace quire {
namespace {
namespace fs = std::filesystem;

constexpr const char* kShard = "model-00001-of-000001.safetensors";  // as published: six digits
constexpr int64_t kChunk = 1 << 20;                                  // elements that a thread makes at a time

class OutputFile {
 public:
  explicit OutputFile(const fs::path& path)
      : path_(path.string()), fd_(open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
    if (fd_ < 0) Fail("create");
  }
  OutputFile(const OutputFile&) = delete;
  ~OutputFile() {
    if (fd_ >= 0) close(fd_);
  }

  void WriteAt(size_t at, const void* bytes, size_t count) const {
    const char* from = static_cast<const char*>(bytes);
    while (count > 0) {
      const ssize_t n = pwrite(fd_, from, count, static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) Fail("write");
      from += n;
      at += static_cast<size_t>(n);
      count -= static_cast<size_t>(n);
    }
  }
  void Close() {
    if (close(std::exchange(fd_, -1)) != 0) Fail("close");
  }

 private:
  [[noreturn]] void Fail(const char* doing) const {
    throw Error(ErrorKind::kIo, std::string("cannot ") + doing + ": " + std::strerror(errno), path_);
  }
  std::string path_;
  int fd_;
};

void WriteJson(const fs::path& path, const Json& json) {
  const std::string text = json.Dump() + "\n";
  OutputFile file(path);
  file.WriteAt(0, text.data(), text.size());
  file.Close();
}

Json Numbers(const std::vector<int>& numbers) {
  return Json::Array(numbers.begin(), numbers.end());
}

Json::Object LanguageJson(const LmConfig& lm) {
  return {{"bos_token_id", lm.bos_id},
          {"eos_token_id", lm.eos_id},
          {"first_k_dense_replace", lm.dense_layers},
          {"hidden_size", lm.hidden},
          {"intermediate_size", lm.dense_ffn},
          {"kv_lora_rank", nullptr},
          {"lm_head", true},
          {"max_position_embeddings", lm.max_positions},
          {"moe_intermediate_size", lm.moe_ffn},
          {"n_group", 1},
          {"n_routed_experts", lm.experts},
          {"n_shared_experts", lm.shared_experts},
          {"num_attention_heads", lm.heads},
          {"num_experts_per_tok", lm.experts_per_token},
          {"num_hidden_layers", lm.layers},
          {"num_key_value_heads", lm.kv_heads},
          {"q_lora_rank", nullptr},
          {"qk_nope_head_dim", 0},
          {"qk_rope_head_dim", 0},
          {"rm_head", false},
          {"topk_group", 1},
          {"topk_method", "greedy"},
          {"use_mla", false},
          {"v_head_dim", 0},
          {"vocab_size", lm.vocab}};
}

Json VisionJson(const ModelConfig& config) {
  const SamConfig& sam = config.sam;
  Json::Object parts = {{"sam_vit_b", Json::Object{{"downsample_channels", Numbers({sam.net2, sam.out})},
                                                   {"global_attn_indexes", Numbers(sam.global_layers)},
                                                   {"heads", sam.heads},
                                                   {"layers", sam.layers},
                                                   {"width", sam.width}}}};
  if (config.clip)
    parts.emplace_back("clip-l-14-224", Json::Object{{"heads", config.clip->heads},
                                                     {"image_size", 224},
                                                     {"layers", config.clip->layers},
                                                     {"patch_size", config.clip->patch_px},
                                                     {"width", config.clip->width}});
  if (config.encoder) parts.emplace_back("qwen2-0-5b", Json::Object{{"dim", config.encoder->hidden}});
  return Json::Object{{"image_size", sam.image_px},
                      {"model_name", config.clip ? "deeplip_b_l" : "deepencoderv2"},
                      {"model_type", "vision"},
                      {"width", std::move(parts)}};
}

Json ProcessorJson() {
  const Json half = Json::Array{0.5, 0.5, 0.5};
  return Json::Object{{"add_special_token", false},
                      {"candidate_resolutions", Json::Array{Numbers({1024, 1024})}},
                      {"downsample_ratio", 4},
                      {"image_mean", half},
                      {"image_std", half},
                      {"image_token", "<image>"},
                      {"mask_prompt", false},
                      {"normalize", true},
                      {"pad_token", "<｜▁pad▁｜>"},
                      {"patch_size", 16},
                      {"processor_class", "DeepseekVLV2Processor"},
                      {"sft_format", "deepseek"}};
}

// The tokens behind the plain ones, by their published names (model.md 6); a small vocabulary keeps the last twelve.
std::vector<std::string> AddedTokens(bool all) {
  std::vector<std::string> tokens;
  if (all) {
    for (int i = 0; i < 800; ++i) tokens.push_back("<｜place▁holder▁no▁" + std::to_string(i) + "｜>");
    for (const char* name : {"fim▁hole", "fim▁begin", "fim▁end", "User", "Assistant"})
      tokens.push_back("<｜" + std::string(name) + "｜>");
    tokens.push_back("<|EOT|>");
    for (const char* name : {"calls▁begin", "calls▁end", "call▁begin", "call▁end", "outputs▁begin", "outputs▁end",
                             "output▁begin", "output▁end", "sep"})
      tokens.push_back("<｜tool▁" + std::string(name) + "｜>");
  }
  for (const char* token : {"<image>", "<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>", "<|grounding|>", "<td>", "</td>",
                            "<tr>", "</tr>", "<|User|>", "<|Assistant|>"})
    tokens.push_back(token);
  return tokens;
}

// Begin, end, pad; the 256 bytes as ByteLevel writes them, in the order of their characters (so "\n" is 201, as
// published); fillers; the added tokens at their published places, or at the end of a smaller vocabulary.
Json TokenizerJson(int vocab) {
  constexpr int kPublishedFirstAdded = 128000;
  const bool all = vocab > kPublishedFirstAdded + 1000;
  const std::vector<std::string> added = AddedTokens(all);
  const int first_added = all ? kPublishedFirstAdded : vocab - static_cast<int>(added.size());

  Json::Object plain;
  Json::Array specials;
  const auto add = [](const std::string& text, int id) {
    return Json::Object{{"id", id},        {"content", text},     {"single_word", false}, {"lstrip", false},
                        {"rstrip", false}, {"normalized", false}, {"special", true}};
  };
  const auto next = [&] { return static_cast<int>(plain.size()); };
  for (const char* text : {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"}) {
    specials.push_back(add(text, next()));
    plain.emplace_back(text, next());
  }
  for (char32_t code = 33; code < 324; ++code) {
    const bool unused = (code > 126 && code < 161) || code == 173;
    if (unused) continue;
    std::string text;
    AppendUtf8(&text, code);
    plain.emplace_back(text, next());
  }
  while (next() < first_added) plain.emplace_back("Ġt" + std::to_string(next()), next());
  for (size_t i = 0; i < added.size(); ++i) specials.push_back(add(added[i], first_added + static_cast<int>(i)));

  const Json byte_level =
      Json::Object{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  return Json::Object{{"version", "1.0"},
                      {"truncation", nullptr},
                      {"padding", nullptr},
                      {"added_tokens", std::move(specials)},
                      {"normalizer", nullptr},
                      {"pre_tokenizer", byte_level},
                      {"post_processor", nullptr},
                      {"decoder", byte_level},
                      {"model", Json::Object{{"type", "BPE"},
                                             {"dropout", nullptr},
                                             {"unk_token", nullptr},
                                             {"continuing_subword_prefix", nullptr},
                                             {"end_of_word_suffix", nullptr},
                                             {"fuse_unk", false},
                                             {"byte_fallback", false},
                                             {"ignore_merges", false},
                                             {"vocab", std::move(plain)},
                                             {"merges", Json::Array()}}}};
}

Json IndexJson(const std::vector<ListedTensor>& tensors) {
  Json::Object shards;
  size_t bytes = 0;
  for (const ListedTensor& listed : tensors) {
    shards.emplace_back(listed.tensor.name, kShard);
    bytes += listed.tensor.bytes();
  }
  return Json::Object{{"metadata", Json::Object{{"total_size", bytes}}}, {"weight_map", std::move(shards)}};
}

void WriteShard(const std::vector<ListedTensor>& tensors, uint64_t seed, const fs::path& path, ThreadPool* pool) {
  struct Chunk {
    const ListedTensor* listed;
    int64_t first;  // element
    size_t at;      // byte of the file
  };
  std::vector<HostTensor> infos;
  for (const ListedTensor& listed : tensors) infos.push_back(listed.tensor);
  const std::string table = SafetensorsTable(infos);
  std::vector<Chunk> chunks;
  size_t at = table.size();
  for (const ListedTensor& listed : tensors) {
    for (int64_t first = 0; first < listed.tensor.elements(); first += kChunk)
      chunks.push_back({&listed, first, at + static_cast<size_t>(first) * sizeof(Bf16)});
    at += listed.tensor.bytes();
  }

  const fs::path part = path.string() + ".part";
  OutputFile file(part);
  file.WriteAt(0, table.data(), table.size());
  pool->For(static_cast<int64_t>(chunks.size()), [&](int64_t i) {
    const Chunk& chunk = chunks[static_cast<size_t>(i)];
    std::vector<Bf16> weights(static_cast<size_t>(std::min(kChunk, chunk.listed->tensor.elements() - chunk.first)));
    FillRandom(*chunk.listed, seed, chunk.first, weights);
    file.WriteAt(chunk.at, weights.data(), weights.size() * sizeof(Bf16));
  });
  file.Close();
  std::error_code failed;
  fs::rename(part, path, failed);
  if (failed) throw Error(ErrorKind::kIo, "cannot rename: " + failed.message(), part.string());
}

}  // namespace

ModelConfig SmallConfig(Architecture architecture) {
  ModelConfig config = PublishedConfig(architecture);
  config.lm = {.layers = 3,
               .hidden = 256,
               .heads = 2,
               .kv_heads = 2,
               .dense_ffn = 384,
               .experts = 8,
               .experts_per_token = 3,
               .moe_ffn = 32,
               .vocab = 1024};
  config.sam = {
      .layers = 3, .width = 64, .heads = 1, .mlp = 128, .global_layers = {1}, .neck = 32, .net2 = 48, .out = 64};
  if (config.clip) config.clip = ClipConfig{.layers = 2, .width = 64, .heads = 1, .mlp = 128};
  if (config.encoder) config.encoder = EncoderConfig{.layers = 2, .hidden = 64, .heads = 1, .kv_heads = 1, .ffn = 96};
  config.projector_in = config.clip ? 128 : 64;
  config.projector_out = config.lm.hidden;
  return config;
}

Json ConfigJson(const ModelConfig& config) {
  const Json::Object language = LanguageJson(config.lm);
  Json::Object root = {{"architectures", Json::Array{config.architecture_name}},
                       {"candidate_resolutions", Json::Array{Numbers({1024, 1024})}},
                       {"global_view_pos", "head"},
                       {"language_config", language},
                       {"model_type", "deepseek_vl_v2"},
                       {"projector_config", Json::Object{{"input_dim", config.projector_in},
                                                         {"model_type", "mlp_projector"},
                                                         {"n_embed", config.projector_out},
                                                         {"projector_type", "linear"}}},
                       {"tile_tag", "2D"},
                       {"torch_dtype", "bfloat16"},
                       {"vision_config", VisionJson(config)}};
  root.insert(root.end(), language.begin(), language.end());
  return root;
}

void WriteRandomCheckpoint(const ModelConfig& config, uint64_t seed, const std::string& folder, ThreadPool* pool) {
  const fs::path path(folder);
  std::error_code failed;
  fs::create_directories(path, failed);
  if (failed) throw Error(ErrorKind::kIo, "cannot make the folder: " + failed.message(), folder);
  const std::vector<ListedTensor> tensors = TensorsOf(config);
  WriteJson(path / "config.json", ConfigJson(config));
  WriteJson(path / "processor_config.json", ProcessorJson());
  WriteJson(path / "tokenizer.json", TokenizerJson(config.lm.vocab));
  WriteJson(path / "model.safetensors.index.json", IndexJson(tensors));
  WriteShard(tensors, seed, path / kShard, pool);
}

}  // namespace quire
