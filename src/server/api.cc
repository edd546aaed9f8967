#include "server/api.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <utility>

#include "server/chat.h"
#include "server/openai_parts.h"
#include "server/openapi.h"
#include "server/responses.h"
#include "server/tokenize.h"

namespace quire {
namespace {

constexpr int kParsers = 2;
constexpr size_t kMostUnparsed = 4096;
constexpr int kNiceness = 5;  // the device's threads first
constexpr std::string_view kModelsPath = "/v1/models/";

HttpResponse JsonResponse(const Json& body, int status = 200) {
  return {.status = status, .body = body.Dump() + "\n"};
}

// "2026-01-31T12:00:00Z".
std::string UtcNow() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

// Of a preflight: what the page asks for, where that is a list of names.
std::string AllowedHeaders(const HttpRequest& head) {
  const std::string_view asked = head.Header("Access-Control-Request-Headers");
  const bool names = !asked.empty() && asked.size() < 2000 && std::ranges::all_of(asked, [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == ',' || c == ' ';
  });
  return names ? std::string(asked) : "Authorization, Content-Type, X-Request-Id";
}

std::string Printable(std::string_view text) {
  std::string printable;
  for (const char c : text.substr(0, 200)) printable += c > ' ' && c < 127 && c != '"' && c != '\\' ? c : '?';
  return printable;
}

}  // namespace

// What a path means, by method.
struct Api::Route {
  enum class Need { kNothing, kKey, kModel };  // kModel: a key, and a model that is ready
  std::string_view method, path;
  Need need;
  void (*handle)(Api&, const RequestPtr&, const ReplyPtr&);
};

const std::vector<Api::Route>& Api::Routes() {
  using Need = Route::Need;
  static const std::vector<Route> routes = {
      {"GET", "/health", Need::kNothing,
       [](Api& api, const RequestPtr&, const ReplyPtr& reply) { reply->Send(api.Health()); }},
      {"GET", "/version", Need::kNothing,
       [](Api&, const RequestPtr&, const ReplyPtr& reply) {
         reply->Send(JsonResponse(Json::Object{{"version", QUIRE_VERSION}}));
       }},
      {"GET", "/metrics", Need::kNothing,
       [](Api& api, const RequestPtr&, const ReplyPtr& reply) {
         api.Parse(reply,
                   [&api, reply] { reply->Send(api.MetricsText()); });  // an engine elsewhere may be slow to answer
       }},
      {"GET", "/openapi.json", Need::kNothing,
       [](Api&, const RequestPtr&, const ReplyPtr& reply) { reply->Send({.body = std::string(OpenApiJson())}); }},
      {"GET", "/v1/models", Need::kModel,
       [](Api& api, const RequestPtr& request, const ReplyPtr& reply) { reply->Send(api.Models(*request)); }},
      {"GET", kModelsPath, Need::kModel,
       [](Api& api, const RequestPtr& request, const ReplyPtr& reply) { reply->Send(api.Models(*request)); }},
      {"POST", "/v1/chat/completions", Need::kModel,
       [](Api& api, const RequestPtr& request, const ReplyPtr& reply) {
         api.Page(request, reply, ReadChatRequest, MakeChatAnswer);
       }},
      {"POST", "/v1/completions", Need::kModel,
       [](Api& api, const RequestPtr& request, const ReplyPtr& reply) {
         api.Page(request, reply, ReadCompletionRequest, MakeCompletionAnswer);
       }},
      {"POST", "/v1/responses", Need::kModel,
       [](Api& api, const RequestPtr& request, const ReplyPtr& reply) {
         api.Page(request, reply, ReadResponsesRequest, MakeResponsesAnswer);
       }},
      {"POST", "/v1/ocr", Need::kModel,
       [](Api& api, const RequestPtr& request, const ReplyPtr& reply) { api.Ocr(request, reply); }},
      {"POST", "/tokenize", Need::kModel,
       [](Api& api, const RequestPtr& request, const ReplyPtr& reply) { api.Tokens(request, reply, Tokenize); }},
      {"POST", "/detokenize", Need::kModel,
       [](Api& api, const RequestPtr& request, const ReplyPtr& reply) { api.Tokens(request, reply, Detokenize); }},
  };
  return routes;
}

const Api::Route* Api::FindRoute(std::string_view path) {
  for (const Route& route : Routes()) {
    const bool holds = route.path == kModelsPath ? path.size() > kModelsPath.size() && path.starts_with(kModelsPath)
                                                 : path == route.path;
    if (holds) return &route;
  }
  return nullptr;
}

Api::Api(const ApiOptions& options)
    : options_(options),
      keys_(options.keys, options.key_file),
      guard_(options.host, options.cors_origins, options.allowed_hosts),
      decoders_(options.decode),
      pixel_budget_(options.max_pixels_in_work),
      parsers_(kParsers, kMostUnparsed, kNiceness),
      pages_(options.workers, static_cast<size_t>(options.max_queue), kNiceness) {
  if (options.allow_remote) remote_.emplace(options.remote);
  if (options.access_log == "-") {
    log_ = &std::cerr;
  } else if (!options.access_log.empty()) {
    log_file_.open(options.access_log, std::ios::app);
    if (!log_file_) throw Error(ErrorKind::kIo, "cannot write the access log", options.access_log);
    log_ = &log_file_;
  }
}

Api::~Api() {
  Close();
}

void Api::Close() {
  closing_ = true;
  parsers_.Close();
  pages_.Close();
}

void Api::SetModel(std::unique_ptr<ServedModel> model) {
  const BackendInfo& backend = model->session->engine().backend_info();
  metrics_.SetBuild(QUIRE_VERSION, model->names.front(), Name(backend.dtype), backend.name);
  owned_model_ = std::move(model);
  model_ = owned_model_.get();
}

void Api::SetFailed(std::string cause) {
  const std::lock_guard lock(failure_mutex_);
  failure_ = std::move(cause);
}

std::optional<ApiError> Api::NotNow() const {
  auto unavailable = [](const char* code, const std::string& message) {
    ApiError error(503, code, message);
    error.headers.emplace_back("Retry-After", "2");
    return error;
  };
  if (draining_) return EndingError("the server is about to end and takes no new requests");
  if (model()) return std::nullopt;
  const std::lock_guard lock(failure_mutex_);
  if (!failure_.empty()) return ApiError(503, "failed", "the model could not be loaded: " + failure_);
  return unavailable("loading", "the model is being loaded");
}

std::optional<HttpResponse> Api::Refuse(const HttpRequest& head) {
  if (auto error = guard_.Refuse(head, keys_.any())) return ToResponse(*error);
  const Route* route = FindRoute(head.path);
  if (head.method == "OPTIONS" && guard_.allows_origins() && route)
    return HttpResponse{.status = 204,
                        .headers = {{"Access-Control-Allow-Methods", std::string(route->method) + ", OPTIONS"},
                                    {"Access-Control-Allow-Headers", AllowedHeaders(head)},
                                    {"Access-Control-Max-Age", "3600"}}};
  const bool open = route && route->need == Route::Need::kNothing;
  if (!open && !keys_.Allow(head.Header("Authorization"))) {
    ApiError error(401, "invalid_api_key",
                   head.Header("Authorization").empty() ? "wanted a key: Authorization: Bearer KEY, found none"
                                                        : "this key is not known here");
    error.headers.emplace_back("WWW-Authenticate", "Bearer");
    return ToResponse(error);
  }
  if (!route) return ToResponse(ApiError(404, "not_found", "there is no " + Shown(head.path) + " here"));
  if (head.method != route->method && !(head.method == "HEAD" && route->method == "GET")) {
    ApiError error(405, "method_not_allowed", "wanted " + std::string(route->method) + ", found " + Shown(head.method));
    error.headers.emplace_back("Allow", std::string(route->method));
    return ToResponse(error);
  }
  if (open) return std::nullopt;
  if (auto error = NotNow()) return ToResponse(*error);
  if (const std::string_view encoding = head.Header("Content-Encoding"); !encoding.empty() && encoding != "identity")
    return ToResponse(ApiError(415, "unsupported_media_type",
                               "wanted a body as it is, found the Content-Encoding " + Shown(encoding)));
  if (route->method == "POST" && pages_.full())
    return ToResponse(ApiError(Error(ErrorKind::kBusy, "too many requests wait already")));
  return std::nullopt;
}

void Api::Handle(RequestPtr request, ReplyPtr reply) {
  FindRoute(request->path)->handle(*this, request, reply);
}

HttpResponse Api::Fault(const HttpFault& fault) {
  ApiError error(fault.status, fault.code, fault.message);
  if (fault.status == 503) error.headers.emplace_back("Retry-After", "2");
  return ToResponse(error);
}

std::string Api::LastWords(const HttpRequest& request) {
  std::string words = SseData(ToJson(EndingError("the server ended before the end of the reply")));
  if (request.path != "/v1/responses") words += kSseDone;
  return words;
}

void Api::Ended(const HttpRequest& request, int status, std::string_view error, int64_t bytes, double ms) {
  const Route* route = FindRoute(request.path);
  metrics_.CountRequest(route ? route->path : "other", status);
  if (!error.empty()) metrics_.CountError(error);
  if (!log_) return;
  char line[700];
  std::snprintf(line, sizeof line, "%s %s \"%s %s\" %d %lld %.1fms %s\n", UtcNow().c_str(), request.client.c_str(),
                Printable(request.method).c_str(), Printable(request.path).c_str(), status,
                static_cast<long long>(bytes), ms, request.id.c_str());
  *log_ << line << std::flush;
}

HttpResponse Api::Health() const {
  auto response = [](const char* status, const std::string& cause = {}) {
    Json body = Json::Object{{"status", status}};
    if (!cause.empty()) body.Set("cause", cause);
    return JsonResponse(body, std::string_view(status) == "ready" ? 200 : 503);
  };
  if (draining_) return response("draining");
  if (const ServedModel* served = model()) {
    const EngineHealth health = served->session->engine().health();
    switch (health.state) {
      case EngineHealth::State::kReady:
        return response("ready");
      case EngineHealth::State::kLoading:
        return response("loading", health.cause);
      case EngineHealth::State::kFailed:
        return response("failed", health.cause);
    }
  }
  const std::lock_guard lock(failure_mutex_);
  return failure_.empty() ? response("loading") : response("failed", failure_);
}

HttpResponse Api::Models(const HttpRequest& request) const {
  if (request.path.starts_with(kModelsPath)) {
    try {
      return JsonResponse(DescribeModel(*model(), model()->NameFor(request.path.substr(kModelsPath.size()))));
    } catch (ApiError& error) {
      error.param.clear();
      return ToResponse(error);
    }
  }
  Json::Array list;
  for (const std::string& name : model()->names) list.push_back(DescribeModel(*model(), name));
  return JsonResponse(Json::Object{{"object", "list"}, {"data", std::move(list)}});
}

HttpResponse Api::MetricsText() {
  std::optional<EngineStats> stats;
  if (model()) stats = model()->session->engine().stats();
  const Metrics::Levels levels{
      .waiting = pages_.waiting() + parsers_.waiting(), .running = pages_.running(), .connections = connections_};
  return {.body = metrics_.Text(levels, stats ? &*stats : nullptr), .content_type = "text/plain; version=0.0.4"};
}

WorkTools Api::tools() const {
  return {*model(), decoders_, pixel_budget_, metrics_, remote_ ? const_cast<RemotePictures*>(&*remote_) : nullptr,
          closing_};
}

WorkContext Api::MakeContext(const RequestPtr& request, const ReplyPtr& reply, double timeout_s) const {
  double limit = timeout_s > 0 ? timeout_s : options_.timeout_s;
  if (options_.timeout_s > 0) limit = std::min(limit, options_.timeout_s);
  WorkContext context{request, reply, std::nullopt};
  if (limit > 0) {
    context.deadline = request->received + std::chrono::microseconds(static_cast<int64_t>(std::ceil(limit * 1e6)));
    reply->Limit(*context.deadline,
                 ToResponse(ApiError(Error(ErrorKind::kDeadline, "the time limit passed before there was an answer"))));
  }
  return context;
}

void Api::Parse(const ReplyPtr& reply, std::function<void()> parse) {
  const bool queued = parsers_.Push(0, [reply, parse = std::move(parse)] {
    if (reply->gone()) return;
    try {
      parse();
    } catch (...) {
      reply->Send(ToResponse(CurrentApiError()));
    }
  });
  if (!queued) reply->Send(ToResponse(ApiError(Error(ErrorKind::kBusy, "too many requests wait already"))));
}

void Api::Queue(int priority, const WorkContext& context, WorkQueue::Work work) {
  if (!pages_.Push(priority, std::move(work), [reply = context.reply] { return reply->gone(); }))
    throw Error(ErrorKind::kBusy,
                "wanted at most " + std::to_string(options_.max_queue) + " waiting requests, found more", "",
                "try again");
}

void Api::Page(const RequestPtr& request, const ReplyPtr& reply, Reader read, Answerer make_answer) {
  Parse(reply, [this, request, reply, read, make_answer] {
    auto page = std::make_shared<const PageRequest>(read(ParseBody(*request), *model(), options_.allow_remote));
    request->body = std::string();
    const WorkContext context = MakeContext(request, reply, page->timeout_s);
    Queue(page->read.priority, context, [this, context, page, make_answer] {
      const auto answer = make_answer(*page, *model(), *context.reply);
      ReadPage(*page, tools(), context, *answer);
    });
  });
}

void Api::Ocr(const RequestPtr& request, const ReplyPtr& reply) {
  Parse(reply, [this, request, reply] {
    const OcrLimits limits{.allow_remote = options_.allow_remote, .max_pages = options_.max_pages};
    auto ocr = std::make_shared<const OcrRequest>(ReadOcrRequest(*request, *model(), limits));
    request->body = std::string();
    const WorkContext context = MakeContext(request, reply, ocr->page.timeout_s);
    Queue(ocr->page.read.priority, context,
          [this, context, ocr, limits] { ReadDocument(*ocr, tools(), context, limits); });
  });
}

void Api::Tokens(const RequestPtr& request, const ReplyPtr& reply, Json (*answer)(const Json&, const ServedModel&)) {
  Parse(reply, [this, request, reply, answer] { reply->Send(JsonResponse(answer(ParseBody(*request), *model()))); });
}

}  // namespace quire
