#include "server/responses.h"

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "server/message.h"
#include "server/openai_parts.h"

namespace quire {
namespace {

constexpr std::array<Fields::Neutral, 1> kNeutral = {{{"background", "false"}}};
constexpr std::array<Fields::Refusal, 6> kRefused = {{
    {"stop", "OpenAI's responses have no stop: /v1/chat/completions has"},
    {"instructions", "the model has no system prompt: put the prompt into the message"},
    {"previous_response_id", "responses are not stored and the model has no conversation"},
    {"conversation", "responses are not stored and the model has no conversation"},
    {"prompt", "there are no stored prompts: put the text into the message, or name a task in quire.task"},
    {"max_completion_tokens", "its name here is max_output_tokens"},
}};

class ResponsesAnswer : public PageAnswer {
 public:
  ResponsesAnswer(const PageRequest& request, const ServedModel& model, HttpReply& reply)
      : request_(request), tokenizer_(model.session->tokenizer()), reply_(reply), created_(UnixSeconds()) {}

  void Begin() override {
    if (!request_.stream || std::exchange(begun_, true)) return;
    reply_.Begin(EventStreamHead());
    const Json response = Response("in_progress", {}, nullptr);
    Event("response.created", {{"response", response}});
    Event("response.in_progress", {{"response", response}});
    Event("response.output_item.added", {{"output_index", 0}, {"item", Item("in_progress", Json::Array{})}});
    Event("response.content_part.added",
          {{"item_id", item_id_}, {"output_index", 0}, {"content_index", 0}, {"part", Part("", {})}});
  }
  void Delta(std::string_view text, std::span<const TokenEvent> tokens) override {
    text_ += text;
    if (!request_.stream) {
      tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
      return;
    }
    Event("response.output_text.delta", {{"item_id", item_id_},
                                         {"output_index", 0},
                                         {"content_index", 0},
                                         {"delta", text},
                                         {"logprobs", LogprobsJson(tokens, tokenizer_)}});
    if (request_.logprobs) tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  }
  void End(const PageRecord& record) override {
    const bool cut = record.is_cut;
    const char* status = cut ? "incomplete" : "completed";
    const Json part = Part(text_, tokens_);
    const Json item = Item(status, Json::Array{part});
    const Json response = Response(status, Json::Array{item}, &record);
    if (!request_.stream) return reply_.Send({.body = response.Dump() + "\n"});
    Begin();  // a blank page has not begun
    Event("response.output_text.done", {{"item_id", item_id_},
                                        {"output_index", 0},
                                        {"content_index", 0},
                                        {"text", text_},
                                        {"logprobs", LogprobsJson(tokens_, tokenizer_)}});
    Event("response.content_part.done",
          {{"item_id", item_id_}, {"output_index", 0}, {"content_index", 0}, {"part", part}});
    Event("response.output_item.done", {{"output_index", 0}, {"item", item}});
    Event(cut ? "response.incomplete" : "response.completed", {{"response", response}});
    reply_.End("");
  }
  void Fail(const ApiError& error) override {
    if (!begun_) return reply_.Send(ToResponse(error));
    Json response = Response("failed", {}, nullptr);
    response.Set("error", Json::Object{{"code", "server_error"}, {"message", error.message}});
    Event("response.failed", {{"response", std::move(response)}});
    reply_.End(error.code);
  }

 private:
  void Event(std::string_view type, Json::Object members) {
    Json event = Json::Object{{"type", type}, {"sequence_number", sequence_++}};
    for (auto& [name, value] : members) event.Set(name, std::move(value));
    reply_.Write(SseEvent(type, event));
  }
  Json Part(std::string_view text, std::span<const TokenEvent> tokens) const {
    return Json::Object{{"type", "output_text"},
                        {"text", text},
                        {"annotations", Json::Array{}},
                        {"logprobs", LogprobsJson(tokens, tokenizer_)}};
  }
  Json Item(const char* status, Json::Array content) const {
    return Json::Object{{"id", item_id_},
                        {"type", "message"},
                        {"status", status},
                        {"role", "assistant"},
                        {"content", std::move(content)}};
  }
  Json Response(const char* status, Json::Array output, const PageRecord* record) const {
    const bool cut = record && record->is_cut;
    const ReadOptions& read = request_.read;
    Json response = Json::Object{
        {"id", id_},
        {"object", "response"},
        {"created_at", created_},
        {"status", status},
        {"background", false},
        {"error", Json()},
        {"incomplete_details", cut ? Json(Json::Object{{"reason", "max_output_tokens"}}) : Json()},
        {"instructions", Json()},
        {"max_output_tokens", read.max_tokens ? Json(read.max_tokens) : Json()},
        {"model", request_.model},
        {"output", std::move(output)},
        {"parallel_tool_calls", false},
        {"previous_response_id", Json()},
        {"store", false},
        {"temperature", static_cast<double>(read.temperature)},
        {"text", Json::Object{{"format", Json::Object{{"type", "text"}}}}},
        {"tool_choice", "none"},
        {"tools", Json::Array{}},
        {"top_p", static_cast<double>(read.top_p)},
        {"truncation", "disabled"},
        {"metadata", request_.metadata},
        {"usage", Json()},
    };
    if (record) {
      response.Set("usage", Json::Object{{"input_tokens", record->prompt_tokens},
                                         {"input_tokens_details", Json::Object{{"cached_tokens", 0}}},
                                         {"output_tokens", record->output_tokens},
                                         {"output_tokens_details", Json::Object{{"reasoning_tokens", 0}}},
                                         {"total_tokens", record->prompt_tokens + record->output_tokens}});
      response.Set("quire", Summary(*record));
    }
    return response;
  }

  const PageRequest& request_;
  const Tokenizer& tokenizer_;
  HttpReply& reply_;
  const std::string id_ = NewId("resp_"), item_id_ = NewId("msg_");
  const int64_t created_;
  bool begun_ = false;
  int sequence_ = 0;
  std::string text_;
  std::vector<TokenEvent> tokens_;
};

void TakeText(Fields& fields) {
  const Json* text = fields.Take("text");
  if (!text) return;
  Fields inner(*text, "text");
  constexpr std::array<Fields::Neutral, 2> kText = {{{"format", R"({"type":"text"})"}, {"verbosity", "\"medium\""}}};
  inner.AcceptNeutral(kText);
  inner.Finish();
}

void TakeInclude(Fields& fields, PageRequest* request) {
  const Json* include = fields.Take("include");
  if (!include) return;
  if (!include->is_array()) throw FieldError("include", "wanted an array, found " + Describe(*include));
  for (const Json& item : include->as_array()) {
    if (item != Json("message.output_text.logprobs"))
      throw FieldError("include", "wanted only \"message.output_text.logprobs\", found " + Describe(item));
    request->logprobs = true;
  }
}

}  // namespace

PageRequest ReadResponsesRequest(const Json& body, const ServedModel& model, bool allow_remote) {
  Fields fields(body, "");
  PageRequest request;
  TakeShared(fields, model, &request);
  TakeStream(fields, &request);
  if (request.include_usage)
    throw FieldError("stream_options.include_usage", "the last event of a response's stream always has the usage",
                     "leave it out");
  TakeInt(fields, "max_output_tokens", 1, kMostInt, &request.read.max_tokens);
  request.skip_special = fields.Bool("skip_special_tokens").value_or(false);
  TakeInclude(fields, &request);
  TakeInt(fields, "top_logprobs", 0, kMostTopLogprobs, &request.read.top_logprobs);
  if (request.logprobs && request.output != OutputForm::kRaw)
    throw FieldError("include", "probabilities are only of the raw text, found another quire.output");
  TakeText(fields);
  if (const Json* metadata = fields.Take("metadata")) request.metadata = *metadata;
  fields.OneOf("truncation", {"disabled", "auto"});
  fields.AcceptNeutral(kNeutral);
  fields.Refuse(kRefused);
  UserMessage message =
      ReadUserMessage(fields.Require("input", "an array of one message"), kResponsesMessage, allow_remote);
  fields.Finish();
  SetMessageAndCheck(std::move(message), model, &request);
  return request;
}

std::unique_ptr<PageAnswer> MakeResponsesAnswer(const PageRequest& request, const ServedModel& model,
                                                HttpReply& reply) {
  return std::make_unique<ResponsesAnswer>(request, model, reply);
}

}  // namespace quire
