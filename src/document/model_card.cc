#include "document/model_card.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/mmap_file.h"

namespace quire {
namespace {

constexpr int kFormat = 1;
constexpr int kMaxCardBytes = 1 << 20;

const std::vector<std::string>& CellTags() {
  static const std::vector<std::string> kTags = {"<td>", "</td>"};
  return kTags;
}

// One object of the card. Every member must be asked for by Find, so that a misspelt one is not passed over.
class Fields {
 public:
  Fields(const Json& json, std::string file, std::string path)
      : json_(json), file_(std::move(file)), path_(std::move(path)) {
    if (!json.is_object()) Fail("", "wanted an object, found " + std::string(json.type_name()));
  }

  [[noreturn]] void Fail(std::string_view field, const std::string& what) const {
    std::string at = path_;
    if (!field.empty()) at += (at.empty() ? "" : ".") + std::string(field);
    throw Error(ErrorKind::kBadModel, (at.empty() ? "" : at + ": ") + what, file_,
                "docs/formats.md describes the file");
  }

  const Json* Find(std::string_view field) {
    known_.insert(std::string(field));
    return json_.Find(field);
  }

  template <typename Read>
  auto As(std::string_view field, const Json& value, Read read) const {
    try {
      return std::invoke(read, value);
    } catch (const Error& error) {
      Fail(field, error.message());
    }
  }

  void Text(std::string_view field, std::string* text) {
    if (const Json* value = Find(field)) *text = As(field, *value, &Json::as_string);
  }

  void Texts(std::string_view field, std::vector<std::string>* texts) {
    const Json* value = Find(field);
    if (!value) return;
    texts->clear();
    for (const Json& item : As(field, *value, &Json::as_array)) texts->push_back(As(field, item, &Json::as_string));
  }

  std::optional<int> Number(std::string_view field, int least) {
    const Json* value = Find(field);
    if (!value) return {};
    const int64_t number = As(field, *value, &Json::as_int);
    if (number < least || number > std::numeric_limits<int>::max())
      Fail(field, "wanted a number of at least " + std::to_string(least) + ", found " + std::to_string(number));
    return static_cast<int>(number);
  }

  void Done() const {
    std::set<std::string> seen;
    for (const auto& [field, value] : json_.as_object()) {
      if (!known_.contains(field)) Fail(field, "unknown field");
      if (!seen.insert(field).second) Fail(field, "given twice");
    }
  }

 private:
  const Json& json_;
  std::string file_, path_;
  std::set<std::string> known_;
};

std::vector<Task> ReadTasks(const Json& json, const std::string& file) {
  std::vector<Task> tasks;
  Fields all(json, file, "tasks");
  for (const auto& [name, value] : json.as_object()) {
    all.Find(name);
    Fields fields(value, file, "tasks." + name);
    Task task{name, "", Labels::kKinds};
    fields.Text("prompt", &task.prompt);
    if (task.prompt.find(kImageMark) == task.prompt.npos ||
        task.prompt.find(kImageMark) != task.prompt.rfind(kImageMark))
      fields.Fail("prompt", "wanted a text with one <image> mark, found \"" + task.prompt + "\"");
    std::string labels = "kinds";
    fields.Text("labels", &labels);
    if (labels != "kinds" && labels != "texts")
      fields.Fail("labels", "wanted kinds or texts, found \"" + labels + "\"");
    if (labels == "texts") task.labels = Labels::kTexts;
    fields.Done();
    tasks.push_back(std::move(task));
  }
  all.Done();
  if (tasks.empty()) all.Fail("", "wanted at least one task");
  return tasks;
}

GuardSettings ReadGuard(const Json& json, const std::string& file) {
  Fields fields(json, file, "guard");
  GuardSettings guard;
  guard.ngram_size = fields.Number("ngram_size", 0).value_or(0);
  guard.ngram_window = fields.Number("ngram_window", 0).value_or(0);
  fields.Texts("whitelist", &guard.whitelist);
  fields.Done();
  return guard;
}

}  // namespace

ModelCard PublishedCard(Architecture architecture) {
  // model.md 7 and 8: the README's prompts as the published code sends them, without a blank at the end.
  ModelCard card;
  card.tasks = {{"document", "<image>\n<|grounding|>Convert the document to markdown."},
                {"plain", "<image>\nFree OCR."},
                {"ocr", "<image>\n<|grounding|>OCR this image.", Labels::kTexts},
                {"figure", "<image>\nParse the figure."},
                {"describe", "<image>\nDescribe this image in detail."},
                {"locate", "<image>\nLocate <|ref|>{text}<|/ref|> in the image.", Labels::kTexts}};
  const bool ocr1 = architecture == Architecture::kOcr1;
  card.guard = {.ngram_size = ocr1 ? 30 : 20, .ngram_window = 90, .whitelist = CellTags()};
  card.modes = ocr1 ? std::vector<std::string>{"gundam", "tiny", "small", "base", "large", "strips"}
                    : std::vector<std::string>{"gundam", "small", "base", "strips"};
  card.default_mode = "gundam";
  return card;
}

ModelCard ParseModelCard(std::string_view json, const std::string& name, Architecture architecture) {
  Json root;
  try {
    root = Json::Parse(json, name);
  } catch (const Error& error) {
    throw Error(ErrorKind::kBadModel, error.message(), name);
  }
  ModelCard card = PublishedCard(architecture);
  Fields fields(root, name, "");
  const int format = fields.Number("format", 1).value_or(kFormat);
  if (format != kFormat)
    fields.Fail("format",
                "wanted " + std::to_string(kFormat) + ", found " + std::to_string(format) + " of a later program");
  fields.Text("name", &card.name);
  fields.Text("description", &card.description);
  if (const Json* tasks = fields.Find("tasks")) card.tasks = ReadTasks(*tasks, name);
  if (const Json* guard = fields.Find("guard")) card.guard = ReadGuard(*guard, name);
  card.smallest_text_px = fields.Number("smallest_text_px", 1);
  if (card.smallest_text_px) card.default_mode = "strips";
  fields.Texts("modes", &card.modes);
  fields.Text("default_mode", &card.default_mode);
  if (std::ranges::find(card.modes, card.default_mode) == card.modes.end())
    fields.Fail("default_mode", "\"" + card.default_mode + "\" is not among the modes");
  card.max_output_tokens = fields.Number("max_output_tokens", 1);
  card.strip_max_lines = fields.Number("strip_max_lines", 1);
  fields.Done();
  return card;
}

ModelCard ReadModelCard(const std::string& folder, Architecture architecture) {
  const std::string path = (std::filesystem::path(folder) / "quire.json").string();
  std::error_code absent;
  if (!std::filesystem::exists(path, absent)) return PublishedCard(architecture);
  return ParseModelCard(ReadFile(path, kMaxCardBytes), path, architecture);
}

GuardSettings NamedGuard(const ModelCard& card, std::string_view name) {
  // model.md 8: the anti-repeat settings of the published PDF and evaluation scripts and of transformers' infer.
  const std::map<std::string_view, GuardSettings> guards = {
      {"model", card.guard},
      {"official-pdf", {.ngram_size = 20, .ngram_window = 50, .whitelist = CellTags()}},
      {"official-eval", {.ngram_size = 40, .ngram_window = 90, .whitelist = CellTags()}},
      {"hf", {.ngram_size = 20, .whole_sequence = true}},
      {"off", {}}};
  if (const auto guard = guards.find(name); guard != guards.end()) return guard->second;
  throw Error(ErrorKind::kUsage, "there is no guard \"" + std::string(name) + "\"", "guard",
              "one of model, official-pdf, official-eval, hf, off");
}

}  // namespace quire
