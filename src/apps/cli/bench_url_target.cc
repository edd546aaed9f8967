#include <curl/curl.h>

#include <algorithm>

#include "apps/cli/bench_target.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "server/base64.h"

namespace quire::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct FreeEasy {
  void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
};
struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

// Reads a reply that is a stream of server-sent events, or, where it is an error, JSON.
class Reply {
 public:
  explicit Reply(Clock::time_point start) : start_(start) {}

  void Push(std::string_view bytes) {
    all_ += bytes;
    for (size_t end; (end = all_.find('\n')) != all_.npos; all_.erase(0, end + 1))
      Line(std::string_view(all_).substr(0, end));
  }
  BenchAnswer Finish(long status) {  // NOLINT(google-runtime-int): libcurl's type
    Line(all_);
    if (answer_.error.empty() && status != 200) answer_.error = "HTTP status " + std::to_string(status);
    if (answer_.error.empty() && !done_) answer_.error = "the stream broke off";
    if (answer_.output_tokens == 0) answer_.output_tokens = pieces_;  // a server without usage
    answer_.total_ms = MsSince(start_);
    return answer_;
  }

 private:
  void Line(std::string_view line) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("data:")) line.remove_prefix(5);
    while (line.starts_with(' ')) line.remove_prefix(1);
    if (line == "[DONE]") done_ = true;
    if (!line.starts_with('{')) return;
    Event(Json::Parse(line, "reply"));
  }
  void Event(const Json& event) {
    if (const Json* error = event.Find("error"); error && error->is_object()) {
      const Json* message = error->Find("message");
      answer_.error = message && message->is_string() ? message->as_string() : error->Dump();
      return;
    }
    if (const Json* usage = event.Find("usage"); usage && usage->is_object()) {
      answer_.prompt_tokens = static_cast<int>(usage->At("prompt_tokens").as_int());
      answer_.output_tokens = static_cast<int>(usage->At("completion_tokens").as_int());
    }
    const Json* choices = event.Find("choices");
    if (!choices || !choices->is_array() || choices->as_array().empty()) return;
    const Json* delta = choices->as_array()[0].Find("delta");
    const Json* content = delta ? delta->Find("content") : nullptr;
    if (!content || !content->is_string() || content->as_string().empty()) return;
    ++pieces_;
    if (answer_.first_token_ms == 0) answer_.first_token_ms = MsSince(start_);
  }

  Clock::time_point start_;
  std::string all_;
  BenchAnswer answer_;
  int pieces_ = 0;
  bool done_ = false;
};

size_t OnBytes(const char* data, size_t /*one*/, size_t count, void* reply) {
  try {
    static_cast<Reply*>(reply)->Push({data, count});
    return count;
  } catch (const Error&) {  // no JSON: the transfer is given up
    return 0;
  }
}

class UrlTarget : public BenchTarget {
 public:
  explicit UrlTarget(UrlTargetOptions options)
      : url_(WithPath(std::move(options.url))),
        key_(std::move(options.key)),
        model_(std::move(options.model)),
        silence_s_(options.silence_s) {
    curl_global_init(CURL_GLOBAL_DEFAULT);
    const Json models = GetModels();
    std::string names;
    for (const Json& entry : models.At("data").as_array()) {
      const std::string& id = entry.At("id").as_string();
      names += (names.empty() ? "" : ", ") + id;
      if (!model_.empty() && id != model_) continue;
      model_ = id;
      const Json* own = entry.Find("quire");
      const Json* tasks = own ? own->Find("tasks") : nullptr;
      if (tasks && tasks->is_array()) tasks_ = tasks->as_array();
      return;
    }
    throw Error(ErrorKind::kNotFound, model_.empty() ? "the server has no model" : "the server has no model " + model_,
                url_, names.empty() ? "" : "it has: " + names);
  }

  std::string Describe() const override { return model_ + " at " + url_; }

  bool HasTask(std::string_view task) const override { return std::ranges::count(tasks_, Json(task)) > 0; }

  BenchAnswer Ask(const BenchQuestion& question) override {
    Json::Array content;
    const std::string uri = "data:image/png;base64," + EncodeBase64(question.picture.bytes);
    content.push_back(Json::Object{{"type", "image_url"}, {"image_url", Json::Object{{"url", uri}}}});
    Json body =
        Json::Object{{"model", model_},
                     {"stream", true},
                     {"stream_options", Json::Object{{"include_usage", true}}},
                     {"temperature", 0},
                     {"messages", Json::Array{Json::Object{{"role", "user"}, {"content", std::move(content)}}}}};
    if (question.max_tokens > 0) body.Set("max_tokens", question.max_tokens);
    Json own;
    if (!question.task.empty()) own.Set("task", question.task);
    if (!question.mode.empty()) own.Set("mode", question.mode);
    if (!own.is_null()) body.Set("quire", std::move(own));
    const std::string text = body.Dump();

    Reply reply(Clock::now());
    long status = 0;  // NOLINT(google-runtime-int): libcurl's type
    const CURLcode code = Perform(url_ + "/chat/completions", &text, OnBytes, &reply, &status);
    BenchAnswer answer = reply.Finish(status);
    if (code != CURLE_OK && code != CURLE_WRITE_ERROR) answer.error = Describe(code);
    return answer;
  }

 private:
  using Writer = size_t (*)(const char*, size_t, size_t, void*);

  // A URL without a path gets that of OpenAI's API.
  static std::string WithPath(std::string url) {
    while (url.ends_with('/')) url.pop_back();
    const size_t scheme = url.find("://");
    const bool has_path = url.find('/', scheme == url.npos ? 0 : scheme + 3) != url.npos;
    return has_path ? url : url + "/v1";
  }

  std::string Describe(CURLcode code) const {
    if (code == CURLE_OPERATION_TIMEDOUT)
      return "the server was silent for " + std::to_string(silence_s_) + " s (--timeout)";
    return curl_easy_strerror(code);
  }

  CURLcode Perform(const std::string& url, const std::string* body, Writer writer, void* into,
                   long* status) const {  // NOLINT(google-runtime-int): libcurl's type
    thread_local const std::unique_ptr<CURL, FreeEasy> easy(curl_easy_init());  // keeps its connection
    curl_easy_reset(easy.get());
    curl_slist* list = curl_slist_append(nullptr, "Content-Type: application/json");
    list = curl_slist_append(list, "Expect:");
    if (!key_.empty()) list = curl_slist_append(list, ("Authorization: Bearer " + key_).c_str());
    const std::unique_ptr<curl_slist, FreeList> headers(list);
    curl_easy_setopt(easy.get(), CURLOPT_URL, url.c_str());
    curl_easy_setopt(easy.get(), CURLOPT_HTTPHEADER, headers.get());
    curl_easy_setopt(easy.get(), CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy.get(), CURLOPT_CONNECTTIMEOUT, static_cast<long>(silence_s_));  // NOLINT
    curl_easy_setopt(easy.get(), CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(easy.get(), CURLOPT_LOW_SPEED_TIME, static_cast<long>(silence_s_));  // NOLINT
    curl_easy_setopt(easy.get(), CURLOPT_WRITEFUNCTION, writer);
    curl_easy_setopt(easy.get(), CURLOPT_WRITEDATA, into);
    if (body) {
      curl_easy_setopt(easy.get(), CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body->size()));
      curl_easy_setopt(easy.get(), CURLOPT_POSTFIELDS, body->data());
    }
    const CURLcode code = curl_easy_perform(easy.get());
    curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, status);
    return code;
  }

  Json GetModels() const {
    const std::string url = url_ + "/models", text = Get(url);
    const char* hint = "the URL goes up to and with /v1: http://127.0.0.1:8000/v1";
    try {
      Json models = Json::Parse(text, url);
      if (const Json* data = models.Find("data"); data && data->is_array()) return models;
    } catch (const Error&) {  // no JSON
    }
    throw Error(ErrorKind::kIo, "wanted a list of models, found something else: no server of OpenAI's API", url, hint);
  }

  std::string Get(const std::string& url) const {
    std::string text;
    long status = 0;  // NOLINT(google-runtime-int): libcurl's type
    const Writer append = [](const char* data, size_t, size_t count, void* into) {
      static_cast<std::string*>(into)->append(data, count);
      return count;
    };
    const CURLcode code = Perform(url, nullptr, append, &text, &status);
    if (code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL)
      throw Error(ErrorKind::kUsage, "wanted a URL as http://127.0.0.1:8000/v1, found \"" + url_ + "\"", "--url",
                  "an IPv6 address stands in brackets: http://[::1]:8000/v1");
    if (code != CURLE_OK)
      throw Error(ErrorKind::kIo, "cannot reach the server: " + Describe(code), url, "is it running, and there?");
    if (status == 401)
      throw Error(
          ErrorKind::kIo,
          "the server answers 401: wanted a key that it knows, found " + std::string(key_.empty() ? "none" : "another"),
          url, "--api-key KEY");
    if (status != 200)
      throw Error(ErrorKind::kIo, "the server answers " + std::to_string(status), url,
                  "the URL goes up to and with /v1: http://127.0.0.1:8000/v1");
    return text;
  }

  std::string url_, key_, model_;
  int silence_s_;
  Json::Array tasks_;
};

}  // namespace

std::unique_ptr<BenchTarget> MakeUrlTarget(UrlTargetOptions options) {
  return std::make_unique<UrlTarget>(std::move(options));
}

}  // namespace quire::cli
