#include "model/inspect.h"

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "base/error.h"
#include "model/tensor_list.h"
#include "weights/weight_store.h"

namespace quire {
namespace {

// A part is the first line whose text is in a tensor's name.
struct PartRule {
  std::string_view in_name;
  std::string_view part;
  bool vision;
};
constexpr PartRule kPartRules[] = {
    {"model.sam_model.", "sam", true},
    {"model.vision_model.", "clip", true},
    {"model.qwen2_model.", "encoder", true},
    {"model.projector.", "projector", true},
    {"model.image_newline", "projector", true},
    {"model.view_seperator", "projector", true},
    {"model.embed_tokens.", "token embeddings", false},
    {".self_attn.", "attention", false},
    {".mlp.experts.", "routed experts", false},
    {".mlp.shared_experts.", "shared experts", false},
    {".mlp.gate.", "routers", false},
    {".mlp.", "dense layers", false},
    {"norm.weight", "norms", false},
    {"lm_head.", "output head", false},
    {"", "other", false},
};

const PartRule& RuleOf(std::string_view name) {
  return *std::ranges::find_if(kPartRules,
                               [&](const PartRule& rule) { return name.find(rule.in_name) != std::string_view::npos; });
}

void CountTensors(const Checkpoint& checkpoint, ModelSummary* summary) {
  for (const PartRule& rule : kPartRules)
    if (summary->parts.empty() || summary->parts.back().name != rule.part)
      summary->parts.push_back({.name = std::string(rule.part)});
  const auto add = [](const HostTensor& tensor, ModelSummary::Part* part) {
    ++part->tensors;
    part->parameters += tensor.elements();
    part->bytes += tensor.bytes();
  };
  for (const SafetensorsFile& file : checkpoint.files()) {
    summary->files.push_back(file.path());
    for (const HostTensor& tensor : file.tensors()) {
      const PartRule& rule = RuleOf(tensor.name);
      add(tensor, &*std::ranges::find(summary->parts, rule.part, &ModelSummary::Part::name));
      add(tensor, &summary->total);
      if (rule.vision) summary->packed_vision_bytes += tensor.bytes();
      auto stored = std::ranges::find(summary->stored, tensor.dtype, &ModelSummary::Stored::dtype);
      if (stored == summary->stored.end()) stored = summary->stored.insert(stored, {.dtype = tensor.dtype});
      ++stored->tensors;
      stored->bytes += tensor.bytes();
    }
  }
  std::erase_if(summary->parts, [](const ModelSummary::Part& part) { return part.tensors == 0; });
}

int64_t ActiveParameters(const ModelSummary& summary) {
  const LmConfig& lm = summary.config.lm;
  int64_t active = 0;
  for (const ModelSummary::Part& part : summary.parts) {
    const auto rule = std::ranges::find(kPartRules, part.name, &PartRule::part);
    if (rule->vision || part.name == "token embeddings" || part.name == "other") continue;
    active += part.name == "routed experts" ? part.parameters / lm.experts * lm.experts_per_token : part.parameters;
  }
  return active;
}

std::vector<std::string> Problems(const Checkpoint& checkpoint, const ModelConfig& config) {
  std::vector<std::string> problems;
  WeightStore store(checkpoint);
  const auto keep = [&](const auto& check) {
    try {
      check();
    } catch (const Error& error) {
      problems.push_back(error.what());
    }
  };
  for (const ListedTensor& listed : TensorsOf(config))
    keep([&] { store.Take(listed.tensor.name, listed.tensor.shape); });
  for (const char* pattern : kUnusedTensors) store.Ignore(pattern);
  keep([&] { store.Finish(); });
  return problems;
}

// "6.78 GB"
std::string Size(size_t bytes) {
  const std::pair<double, const char*> units[] = {{1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}};
  for (const auto& [unit, name] : units) {
    if (static_cast<double>(bytes) < unit) continue;
    char text[32];
    std::snprintf(text, sizeof text, "%.2f %s", static_cast<double>(bytes) / unit, name);
    return text;
  }
  return std::to_string(bytes) + " bytes";
}

// "3,389,119,360"
std::string Grouped(int64_t number) {
  std::string text = std::to_string(number);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3) text.insert(static_cast<size_t>(at), ",");
  return text;
}

std::string Pad(std::string text, size_t width, bool left) {
  const std::string blanks(text.size() < width ? width - text.size() : 0, ' ');
  return left ? text + blanks : blanks + text;
}

std::string TableLine(const std::string& name, int64_t tensors, const std::string& middle, size_t bytes) {
  return "  " + Pad(name, 18, true) + Pad(Grouped(tensors), 8, false) + Pad(middle, 16, false) +
         Pad(Size(bytes), 12, false) + "\n";
}

// "tensor model.norm.weight", "config.json: vocab_size", "published code"
std::string Source(const Setting& setting) {
  if (setting.origin == Origin::kConfig) return setting.from;
  return std::string(Name(setting.origin)) + (setting.from.empty() ? "" : " " + setting.from);
}

Json PartJson(const ModelSummary::Part& part) {
  return Json::Object{
      {"name", part.name}, {"tensors", part.tensors}, {"parameters", part.parameters}, {"bytes", part.bytes}};
}

Json Strings(const std::vector<std::string>& texts) {
  return Json::Array(texts.begin(), texts.end());
}

}  // namespace

ModelSummary InspectModel(const std::string& path) {
  const Checkpoint checkpoint = Checkpoint::Open(path);
  ModelSummary summary;
  summary.path = path;
  summary.config = LoadConfig(checkpoint);
  summary.total.name = "total";
  CountTensors(checkpoint, &summary);
  summary.active_parameters = ActiveParameters(summary);
  summary.mapped_bytes = checkpoint.tensor_bytes();
  const LmConfig& lm = summary.config.lm;
  summary.cache_bytes_per_1000_tokens = size_t{1000} * 2 * sizeof(Bf16) * static_cast<size_t>(lm.layers) *
                                        static_cast<size_t>(lm.kv_heads) * static_cast<size_t>(lm.head_dim);
  summary.problems = Problems(checkpoint, summary.config);
  return summary;
}

std::string ToText(const ModelSummary& summary) {
  const ModelConfig& config = summary.config;
  std::string text = config.architecture_name + " in " + summary.path + "\n";
  text += "\nParts" + Pad("tensors", 23, false) + Pad("parameters", 16, false) + Pad("size", 12, false) + "\n";
  for (const ModelSummary::Part& part : summary.parts)
    text += TableLine(part.name, part.tensors, Grouped(part.parameters), part.bytes);
  text += TableLine("total", summary.total.tensors, Grouped(summary.total.parameters), summary.total.bytes);
  text += "  active for a token of text: " + Grouped(summary.active_parameters) + " parameters\n";

  text += "\nStored as\n";
  for (const ModelSummary::Stored& stored : summary.stored)
    text += TableLine(std::string(Name(stored.dtype)), stored.tensors, "", stored.bytes);
  text += "\nMemory\n";
  text += "  files, mapped      " + Size(summary.mapped_bytes) + "\n";
  text += "  vision, packed     " + Size(summary.packed_vision_bytes) + "\n";
  text += "  cache              " + Size(summary.cache_bytes_per_1000_tokens) + " for 1,000 tokens\n";

  text += "\nNumbers\n";
  for (const Setting& setting : config.settings)
    text += "  " + Pad(setting.name, 26, true) + Pad(setting.value.Dump(), 12, true) + " " + Source(setting) + "\n";
  const auto list = [&](const char* title, const std::vector<std::string>& lines) {
    if (lines.empty()) return;
    text += std::string("\n") + title + "\n";
    for (const std::string& line : lines) text += "  " + line + "\n";
  };
  list("Files", summary.files);
  list("Notes", config.notes);
  list("Problems", summary.problems);
  return text;
}

Json ToJson(const ModelSummary& summary) {
  Json::Array parts, stored, numbers;
  for (const ModelSummary::Part& part : summary.parts) parts.push_back(PartJson(part));
  for (const ModelSummary::Stored& kind : summary.stored)
    stored.push_back(Json::Object{{"dtype", Name(kind.dtype)}, {"tensors", kind.tensors}, {"bytes", kind.bytes}});
  for (const Setting& setting : summary.config.settings)
    numbers.push_back(Json::Object{
        {"name", setting.name}, {"value", setting.value}, {"origin", Name(setting.origin)}, {"from", setting.from}});
  return Json::Object{{"path", summary.path},
                      {"architecture", summary.config.architecture_name},
                      {"parts", std::move(parts)},
                      {"total", PartJson(summary.total)},
                      {"active_parameters", summary.active_parameters},
                      {"stored", std::move(stored)},
                      {"memory", Json::Object{{"mapped_bytes", summary.mapped_bytes},
                                              {"packed_vision_bytes", summary.packed_vision_bytes},
                                              {"cache_bytes_per_1000_tokens", summary.cache_bytes_per_1000_tokens}}},
                      {"numbers", std::move(numbers)},
                      {"files", Strings(summary.files)},
                      {"notes", Strings(summary.config.notes)},
                      {"problems", Strings(summary.problems)}};
}

}  // namespace quire
