#include "server/chat.h"

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "server/message.h"
#include "server/openai_parts.h"

namespace quire {
namespace {

constexpr std::array<Fields::Neutral, 1> kNeutral = {{{"response_format", R"({"type":"text"})"}}};
constexpr std::array<Fields::Refusal, 1> kNotInCompletions = {{{"suffix", "the text is what is on the page"}}};

void CheckLogprobs(const PageRequest& request) {
  if (request.logprobs && request.output != OutputForm::kRaw)
    throw FieldError("logprobs", "wanted only with the raw text, found another quire.output");
}

// What both kinds of answers share: a stream of chunks, or one object at the end.
class Answer : public PageAnswer {
 public:
  Answer(const PageRequest& request, const ServedModel& model, HttpReply& reply, std::string_view id_prefix)
      : request_(request), model_(model), reply_(reply), id_(NewId(id_prefix)), created_(UnixSeconds()) {}

  void Begin() override {
    if (!request_.stream || std::exchange(begun_, true)) return;
    HttpResponse head = EventStreamHead();
    if (auto first = FirstChoice()) head.body = SseData(Chunk(std::move(*first)));
    reply_.Begin(std::move(head));
  }
  void Delta(std::string_view text, std::span<const TokenEvent> tokens) override {
    size_t offset = characters_;
    for (const TokenEvent& token : tokens) {
      tokens_.push_back(token);
      offsets_.push_back(offset);
      offset += CountUtf8(token.text);
    }
    characters_ += CountUtf8(text);
    if (request_.stream) {
      reply_.Write(SseData(Chunk(DeltaChoice(text))));
      tokens_.clear();
      offsets_.clear();
    } else {
      text_ += text;
    }
  }
  void End(const PageRecord& record) override {
    if (!request_.stream) {
      Json whole = Head(WholeObject());
      whole.Set("choices", Json::Array{WholeChoice(record)});
      whole.Set("usage", CompletionUsage(record));
      whole.Set("quire", Summary(record));
      return reply_.Send({.body = whole.Dump() + "\n"});
    }
    Begin();  // a blank page has not begun
    Json last = Chunk(LastChoice(record));
    last.Set("quire", Summary(record));
    reply_.Write(SseData(last));
    if (request_.include_usage) {
      Json usage = Head(ChunkObject());
      usage.Set("choices", Json::Array{});
      usage.Set("usage", CompletionUsage(record));
      reply_.Write(SseData(usage));
    }
    reply_.Write(kSseDone);
    reply_.End("");
  }
  void Fail(const ApiError& error) override {
    if (!begun_) return reply_.Send(ToResponse(error));
    reply_.Write(SseData(ToJson(error)));
    reply_.Write(kSseDone);
    reply_.End(error.code);
  }

 protected:
  virtual const char* WholeObject() const = 0;
  virtual const char* ChunkObject() const = 0;
  virtual std::optional<Json> FirstChoice() const { return std::nullopt; }
  virtual Json DeltaChoice(std::string_view text) const = 0;
  virtual Json LastChoice(const PageRecord& record) const = 0;
  virtual Json WholeChoice(const PageRecord& record) const = 0;

  // Of the whole answer, or, in a stream, of the chunk: tokens, and the characters of the whole text before each.
  const std::string& text() const { return text_; }
  const std::vector<TokenEvent>& tokens() const { return tokens_; }
  const std::vector<size_t>& offsets() const { return offsets_; }
  const PageRequest& request() const { return request_; }
  const Tokenizer& tokenizer() const { return model_.session->tokenizer(); }

 private:
  Json Head(const char* object) const {
    return Json::Object{{"id", id_}, {"object", object}, {"created", created_}, {"model", request_.model}};
  }
  Json Chunk(Json choice) const {
    Json chunk = Head(ChunkObject());
    chunk.Set("choices", Json::Array{std::move(choice)});
    if (request_.include_usage) chunk.Set("usage", Json());
    return chunk;
  }

  const PageRequest& request_;
  const ServedModel& model_;
  HttpReply& reply_;
  const std::string id_;
  const int64_t created_;
  bool begun_ = false;
  std::string text_;
  std::vector<TokenEvent> tokens_;
  std::vector<size_t> offsets_;
  size_t characters_ = 0;
};

class ChatAnswer : public Answer {
 public:
  ChatAnswer(const PageRequest& request, const ServedModel& model, HttpReply& reply)
      : Answer(request, model, reply, "chatcmpl-") {}

 protected:
  const char* WholeObject() const override { return "chat.completion"; }
  const char* ChunkObject() const override { return "chat.completion.chunk"; }
  std::optional<Json> FirstChoice() const override {
    return Choice("delta", Json::Object{{"role", "assistant"}, {"content", ""}}, Json(), Json());
  }
  Json DeltaChoice(std::string_view text) const override {
    return Choice("delta", Json::Object{{"content", text}}, Logprobs(), Json());
  }
  Json LastChoice(const PageRecord& record) const override {
    return Choice("delta", Json::Object{}, Json(), FinishReason(record));
  }
  Json WholeChoice(const PageRecord& record) const override {
    Json message = Json::Object{{"role", "assistant"}, {"content", text()}, {"refusal", Json()}};
    return Choice("message", std::move(message), Logprobs(), FinishReason(record));
  }

 private:
  static Json Choice(const char* key, Json content, Json logprobs, Json finish_reason) {
    return Json::Object{{"index", 0},
                        {key, std::move(content)},
                        {"logprobs", std::move(logprobs)},
                        {"finish_reason", std::move(finish_reason)}};
  }
  Json Logprobs() const {
    if (!request().logprobs) return Json();
    return Json::Object{{"content", LogprobsJson(tokens(), tokenizer())}, {"refusal", Json()}};
  }
};

class CompletionAnswer : public Answer {
 public:
  CompletionAnswer(const PageRequest& request, const ServedModel& model, HttpReply& reply)
      : Answer(request, model, reply, "cmpl-") {}

 protected:
  const char* WholeObject() const override { return "text_completion"; }
  const char* ChunkObject() const override { return "text_completion"; }
  Json DeltaChoice(std::string_view text) const override { return Choice(text, Logprobs(), Json()); }
  Json LastChoice(const PageRecord& record) const override { return Choice("", Json(), FinishReason(record)); }
  Json WholeChoice(const PageRecord& record) const override { return Choice(text(), Logprobs(), FinishReason(record)); }

 private:
  static Json Choice(std::string_view text, Json logprobs, Json finish_reason) {
    return Json::Object{
        {"index", 0}, {"text", text}, {"logprobs", std::move(logprobs)}, {"finish_reason", std::move(finish_reason)}};
  }
  // The older form: lists beside each other.
  Json Logprobs() const {
    if (!request().logprobs) return Json();
    Json::Array texts, values, tops;
    for (const TokenEvent& token : tokens()) {
      const Json one = LogprobJson(token, tokenizer());
      texts.push_back(one.At("token"));
      values.push_back(one.At("logprob"));
      Json top = Json::Object{};
      for (const Json& entry : one.At("top_logprobs").as_array())
        top.Set(entry.At("token").as_string(), entry.At("logprob"));
      tops.push_back(std::move(top));
    }
    return Json::Object{{"tokens", std::move(texts)},
                        {"token_logprobs", std::move(values)},
                        {"top_logprobs", std::move(tops)},
                        {"text_offset", Json::Array(offsets().begin(), offsets().end())}};
  }
};

}  // namespace

PageRequest ReadChatRequest(const Json& body, const ServedModel& model, bool allow_remote) {
  Fields fields(body, "");
  PageRequest request;
  TakeShared(fields, model, &request);
  TakeStream(fields, &request);
  TakeText(fields, &request);
  TakeInt(fields, "max_tokens", 1, kMostInt, &request.read.max_tokens);
  TakeInt(fields, "max_completion_tokens", 1, kMostInt, &request.read.max_tokens);
  request.logprobs = fields.Bool("logprobs").value_or(false);
  TakeInt(fields, "top_logprobs", 0, kMostTopLogprobs, &request.read.top_logprobs);
  if (request.read.top_logprobs > 0 && !request.logprobs)
    throw FieldError("top_logprobs", "wanted only together with logprobs: true");
  CheckLogprobs(request);
  fields.AcceptNeutral(kNeutral);
  UserMessage message =
      ReadUserMessage(fields.Require("messages", "an array of one message"), kChatMessage, allow_remote);
  fields.Finish();
  SetMessageAndCheck(std::move(message), model, &request);
  return request;
}

PageRequest ReadCompletionRequest(const Json& body, const ServedModel& model, bool allow_remote) {
  Fields fields(body, "");
  PageRequest request{.text_path = "prompt"};
  const Json* picture = nullptr;
  TakeShared(fields, model, &request, &picture);
  TakeStream(fields, &request);
  TakeText(fields, &request);
  TakeInt(fields, "max_tokens", 1, kMostInt, &request.read.max_tokens);
  if (const auto logprobs = fields.Int("logprobs", 0, kMostTopLogprobs)) {
    request.logprobs = true;
    request.read.top_logprobs = static_cast<int>(*logprobs);
  }
  CheckLogprobs(request);
  fields.Refuse(kNotInCompletions);
  fields.AcceptNeutral(kNeutral);
  fields.Require("prompt", "a string");
  std::string text = *fields.String("prompt");
  fields.Finish();
  if (!picture)
    throw FieldError("quire.image", "wanted a picture beside the prompt, found none", "the model reads pictures");
  request.picture = TakePicture(*picture, "quire.image", allow_remote);
  SetPromptAndCheck(std::move(text), model, &request);
  return request;
}

std::unique_ptr<PageAnswer> MakeChatAnswer(const PageRequest& request, const ServedModel& model, HttpReply& reply) {
  return std::make_unique<ChatAnswer>(request, model, reply);
}

std::unique_ptr<PageAnswer> MakeCompletionAnswer(const PageRequest& request, const ServedModel& model,
                                                 HttpReply& reply) {
  return std::make_unique<CompletionAnswer>(request, model, reply);
}

}  // namespace quire
