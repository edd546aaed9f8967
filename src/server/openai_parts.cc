#include "server/openai_parts.h"

#include <chrono>
#include <cstdio>
#include <random>

#include "base/utf8.h"

namespace quire {
namespace {

Json TokenJson(int32_t id, float logprob, const Tokenizer& tokenizer) {
  const std::string& bytes = tokenizer.Bytes(id);
  Json::Array numbers;
  for (const char byte : bytes) numbers.emplace_back(static_cast<int>(static_cast<unsigned char>(byte)));
  return Json::Object{
      {"token", RepairUtf8(bytes)}, {"logprob", static_cast<double>(logprob)}, {"bytes", std::move(numbers)}};
}

}  // namespace

std::string NewId(std::string_view prefix) {
  thread_local std::mt19937_64 random{(uint64_t{std::random_device()()} << 32) ^ std::random_device()()};
  char digits[33];
  std::snprintf(digits, sizeof digits, "%016llx%016llx", static_cast<unsigned long long>(random()),
                static_cast<unsigned long long>(random()));
  return std::string(prefix) + digits;
}

int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string_view FinishReason(const PageRecord& record) {
  return record.is_cut ? "length" : "stop";
}

Json CompletionUsage(const PageRecord& record) {
  return Json::Object{
      {"prompt_tokens", record.prompt_tokens},
      {"completion_tokens", record.output_tokens},
      {"total_tokens", record.prompt_tokens + record.output_tokens},
      {"prompt_tokens_details", Json::Object{{"image_tokens", record.image_tokens}, {"cached_tokens", 0}}}};
}

Json LogprobJson(const TokenEvent& token, const Tokenizer& tokenizer) {
  Json json = TokenJson(token.id, token.logprob, tokenizer);
  Json::Array top;
  for (const auto& [id, logprob] : token.top) top.push_back(TokenJson(id, logprob, tokenizer));
  json.Set("top_logprobs", std::move(top));
  return json;
}

Json LogprobsJson(std::span<const TokenEvent> tokens, const Tokenizer& tokenizer) {
  Json::Array list;
  for (const TokenEvent& token : tokens) list.push_back(LogprobJson(token, tokenizer));
  return list;
}

HttpResponse EventStreamHead() {
  return {.content_type = "text/event-stream; charset=utf-8",
          .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}};
}

std::string SseData(const Json& data) {
  return "data: " + data.Dump() + "\n\n";
}

std::string SseEvent(std::string_view event, const Json& data) {
  return "event: " + std::string(event) + "\n" + SseData(data);
}

}  // namespace quire
