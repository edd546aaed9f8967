#include "server/served_model.h"

#include <algorithm>
#include <limits>

#include "base/json.h"
#include "server/api_error.h"

namespace quire {

const std::string& ServedModel::NameFor(std::string_view named) const {
  if (named.empty()) return names.front();
  const auto it = std::ranges::find(names, named);
  if (it != names.end()) return *it;
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  throw ApiError(404, "model_not_found", "there is no model \"" + Shown(named) + "\" here (there is: " + list + ")",
                 "model");
}

void CheckContext(const ServedModel& model) {
  const PageReader& reader = model.reader();
  const int context = model.session->engine().context_tokens();
  int least = std::numeric_limits<int>::max();
  std::vector<std::string> modes = reader.card().modes;
  modes.push_back(reader.card().default_mode);
  for (const std::string& mode : modes) least = std::min(least, reader.PromptTokens({.mode = mode}) + 1);
  if (context < least)
    throw Error(ErrorKind::kUsage,
                "wanted at least " + std::to_string(least) +
                    " tokens, for the smallest page, its prompt and a token of text, found " + std::to_string(context),
                "--context",
                "leave it out: the model has " + std::to_string(model.session->engine().config().lm.max_positions));
}

Json DescribeModel(const ServedModel& model, const std::string& name) {
  const Engine& engine = model.session->engine();
  const ModelCard& card = model.reader().card();
  Json::Array tasks, modes;
  for (const Task& task : card.tasks) tasks.emplace_back(task.name);
  for (const std::string& mode : card.modes) modes.emplace_back(mode);
  return Json::Object{
      {"id", name},
      {"object", "model"},
      {"created", model.created},
      {"owned_by", "quire"},
      {"root", model.names.front()},
      {"parent", Json()},
      {"max_model_len", engine.context_tokens()},
      {"quire", Json::Object{{"architecture",
                              engine.config().architecture == Architecture::kOcr2 ? "deepseek-ocr-2" : "deepseek-ocr"},
                             {"description", card.description},
                             {"dtype", Name(engine.backend_info().dtype)},
                             {"device", engine.backend_info().name},
                             {"tasks", std::move(tasks)},
                             {"default_task", card.tasks.front().name},
                             {"modes", std::move(modes)},
                             {"default_mode", card.default_mode}}}};
}

}  // namespace quire
