#include "document/page_record.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace quire {
namespace {

constexpr int kSchemaVersion = 1;

struct StatusInfo {
  std::string_view name;
  bool failed;
};
constexpr std::array<StatusInfo, 6> kStatuses = {
    {{"ok", false}, {"blank", false}, {"doubtful", true}, {"length", true}, {"loop", true}, {"error", true}}};

constexpr int kMsDecimals = 3;
constexpr int kShareDecimals = 4;
constexpr int kUnitDecimals = 6;

double Rounded(double value, int decimals) {
  const double scale = std::pow(10, decimals);
  return std::round(value * scale) / scale;
}

template <typename Items>
Json ArrayOf(const Items& items) {
  Json::Array array(std::begin(items), std::end(items));
  return array;
}

Json ToJson(const BlockBox& box) {
  Json::Array unit;
  for (double place : box.unit) unit.emplace_back(Rounded(place, kUnitDecimals));
  return Json::Object{{"grid", Json::Array{box.grid.x1, box.grid.y1, box.grid.x2, box.grid.y2}},
                      {"px", ArrayOf(box.px)},
                      {"unit", std::move(unit)}};
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

PageRecord FailedRecord(const std::string& source, int page, const Error& error) {
  const std::string where = error.where() == source ? "" : error.where();
  const std::string message = Error(error.kind(), error.message(), where, error.hint()).what();
  PageRecord record;
  record.status = PageStatus::kError;
  record.reason = message;
  record.source = source;
  record.page = page;
  record.error = PageError{error.kind(), message};
  return record;
}

Json ToJson(const PageError& error) {
  return Json::Object{{"kind", Info(error.kind).name}, {"message", error.message}};
}

Json ToJson(const Block& block) {
  const std::optional<double> confidence = block.confidence();
  return Json::Object{{"order", block.order},
                      {"kind", Name(block.kind)},
                      {"label", block.label},
                      {"continues", block.continues},
                      {"boxes", ToJsonArray(block.boxes)},
                      {"content", block.content},
                      {"confidence", confidence ? Json(Rounded(*confidence, kShareDecimals)) : Json()},
                      {"min_logprob", confidence ? Json(Rounded(block.logprobs.min, kShareDecimals)) : Json()},
                      {"tokens", block.logprobs.tokens},
                      {"warnings", ArrayOf(block.warnings)}};
}

Json ToJson(const PageRecord& record) {
  Json::Object times;
  for (const auto& [stage, ms] : record.times_ms) times.emplace_back(stage, Rounded(ms, kMsDecimals));
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
                      {"doubtful_share", Rounded(record.doubtful_share, kShareDecimals)},
                      {"text", record.text},
                      {"blocks", ToJsonArray(record.blocks)},
                      {"warnings", ArrayOf(record.warnings)},
                      {"error", record.error ? ToJson(*record.error) : Json()}};
}

}  // namespace quire
