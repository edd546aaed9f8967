#include "document/page_record.h"

#include <algorithm>
#include <array>

namespace quire {
namespace {

constexpr int kSchemaVersion = 1;

struct StatusInfo {
  std::string_view name;
  bool failed;
};
constexpr std::array<StatusInfo, 6> kStatuses = {
    {{"ok", false}, {"blank", false}, {"doubtful", true}, {"length", true}, {"loop", true}, {"error", true}}};

template <typename Items>
Json ArrayOf(const Items& items) {
  Json::Array array(std::begin(items), std::end(items));
  return array;
}

Json ToJson(const BlockBox& box) {
  return Json::Object{{"grid", Json::Array{box.grid.x1, box.grid.y1, box.grid.x2, box.grid.y2}},
                      {"px", ArrayOf(box.px)},
                      {"unit", ArrayOf(box.unit)}};
}

Json ToJson(const PixelRect& rect) {
  return Json::Object{{"x", rect.x}, {"y", rect.y}, {"width", rect.width}, {"height", rect.height}};
}

Json ToJson(const GuardSettings& guard) {
  return Json::Object{{"ngram_size", guard.ngram_size},
                      {"ngram_window", guard.ngram_window},
                      {"whole_sequence", guard.whole_sequence},
                      {"whitelist", ArrayOf(guard.whitelist)}};
}

template <typename Items>
Json ToJsonArray(const Items& items) {
  Json::Array array;
  for (const auto& item : items) array.push_back(ToJson(item));
  return array;
}

}  // namespace

std::string_view Name(PageStatus status) {
  return kStatuses[static_cast<size_t>(status)].name;
}
bool IsFailed(PageStatus status) {
  return kStatuses[static_cast<size_t>(status)].failed;
}

Json ToJson(const Block& block) {
  const std::optional<double> confidence = block.confidence();
  return Json::Object{{"order", block.order},
                      {"kind", Name(block.kind)},
                      {"label", block.label},
                      {"continues", block.continues},
                      {"boxes", ToJsonArray(block.boxes)},
                      {"content", block.content},
                      {"confidence", confidence ? Json(*confidence) : Json()},
                      {"min_logprob", confidence ? Json(block.logprobs.min) : Json()},
                      {"tokens", block.logprobs.tokens},
                      {"warnings", ArrayOf(block.warnings)}};
}

Json ToJson(const PageRecord& record) {
  Json::Object times;
  for (const auto& [stage, ms] : record.times_ms) times.emplace_back(stage, ms);
  Json error;
  if (record.error) error = Json::Object{{"kind", Info(record.error->kind).name}, {"message", record.error->message}};
  return Json::Object{{"schema_version", kSchemaVersion},
                      {"status", Name(record.status)},
                      {"reason", record.reason},
                      {"source", record.source},
                      {"page", record.page},
                      {"width_px", record.width_px},
                      {"height_px", record.height_px},
                      {"task", record.task},
                      {"prompt", record.prompt},
                      {"mode", record.mode},
                      {"grid", Json::Object{{"columns", record.grid_columns}, {"rows", record.grid_rows}}},
                      {"strips", ToJsonArray(record.strips)},
                      {"image_tokens", record.image_tokens},
                      {"prompt_tokens", record.prompt_tokens},
                      {"output_tokens", record.output_tokens},
                      {"times_ms", std::move(times)},
                      {"model", record.model},
                      {"dtype", record.dtype},
                      {"device", record.device},
                      {"guard", ToJson(record.guard)},
                      {"doubtful_share", record.doubtful_share},
                      {"text", record.text},
                      {"blocks", ToJsonArray(record.blocks)},
                      {"warnings", ArrayOf(record.warnings)},
                      {"error", std::move(error)}};
}

}  // namespace quire
