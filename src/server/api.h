// The API: which path and method means what, who may ask, and how much may wait (docs/api.md).
#pragma once

#include <atomic>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "image/decoder_client.h"
#include "server/http.h"
#include "server/http_guard.h"
#include "server/keys.h"
#include "server/metrics.h"
#include "server/ocr.h"
#include "server/page_work.h"
#include "server/served_model.h"
#include "server/work_queue.h"

namespace quire {

struct ApiOptions {
  std::vector<std::string> keys;
  std::string key_file;
  std::string host;                                      // where the server listens
  std::vector<std::string> cors_origins, allowed_hosts;  // of web pages that may call; "*": all
  bool allow_remote = false;
  RemoteOptions remote;
  DecodeOptions decode;
  int workers = 18;                          // pages prepared and read at once
  int64_t max_pixels_in_work = 200'000'000;  // decoded, of all requests together
  int max_queue = 1024;                      // requests that wait for a worker
  int max_pages = 1000;                      // of a request to /v1/ocr
  double timeout_s = 0;                      // of a request; 0: none
  std::string access_log;                    // a file; "-": standard error; empty: none
};

// Requests are parsed by two threads and read by `workers` threads; what needs neither is answered on the server's.
class Api : public HttpHandler {
 public:
  // Throws Error for keys, log or decoder that cannot be had.
  explicit Api(const ApiOptions& options);
  ~Api() override;

  // Any thread. Until one of them is called the model is loading.
  void SetModel(std::unique_ptr<ServedModel> model);
  void SetFailed(std::string cause);

  void Drain() { draining_ = true; }
  void ReloadKeys() { keys_.Reload(); }
  // Pages that are being read end soon, as replies of their kind do (503). Any thread.
  void EndPages() { closing_ = true; }
  // Gives up what waits and what runs. Replies that are still open get no end.
  void Close();

  std::optional<HttpResponse> Refuse(const HttpRequest& head) override;
  void Handle(std::shared_ptr<HttpRequest> request, std::shared_ptr<HttpReply> reply) override;
  HttpResponse Fault(const HttpFault& fault) override;
  std::string LastWords(const HttpRequest& request) override;
  HttpHeaders CommonHeaders(const HttpRequest& request) override { return guard_.ReplyHeaders(request); }
  void OnConnections(int count) override { connections_ = count; }
  void Ended(const HttpRequest& request, int status, std::string_view error, int64_t bytes, double ms) override;

 private:
  struct Route;
  static const std::vector<Route>& Routes();
  static const Route* FindRoute(std::string_view path);
  using RequestPtr = std::shared_ptr<HttpRequest>;
  using ReplyPtr = std::shared_ptr<HttpReply>;
  using Reader = PageRequest (*)(const Json&, const ServedModel&, bool);
  using Answerer = std::unique_ptr<PageAnswer> (*)(const PageRequest&, const ServedModel&, HttpReply&);

  // Quick ones.
  HttpResponse Health() const;
  HttpResponse Models(const HttpRequest& request) const;
  HttpResponse MetricsText();
  // Why a request for the model cannot be served now.
  std::optional<ApiError> NotNow() const;

  // Parsed elsewhere. parse: throws; its errors are the reply.
  void Parse(const ReplyPtr& reply, std::function<void()> parse);
  void Page(const RequestPtr& request, const ReplyPtr& reply, Reader read, Answerer answer);
  void Ocr(const RequestPtr& request, const ReplyPtr& reply);
  void Tokens(const RequestPtr& request, const ReplyPtr& reply, Json (*answer)(const Json&, const ServedModel&));
  // Queues work for a page; throws Error{kBusy}.
  void Queue(int priority, const WorkContext& context, WorkQueue::Work work);
  // With the deadline, which the reply keeps too: a request that waits until then gets its answer then.
  WorkContext MakeContext(const RequestPtr& request, const ReplyPtr& reply, double timeout_s) const;
  WorkTools tools() const;
  const ServedModel* model() const { return model_.load(); }

  ApiOptions options_;
  Keys keys_;
  const HttpGuard guard_;
  mutable Metrics metrics_;
  mutable DecodePool decoders_;
  mutable PixelBudget pixel_budget_;
  std::optional<RemotePictures> remote_;
  std::atomic<int> connections_{0};
  std::ofstream log_file_;
  std::ostream* log_ = nullptr;

  std::unique_ptr<ServedModel> owned_model_;
  std::atomic<const ServedModel*> model_{nullptr};
  mutable std::mutex failure_mutex_;
  std::string failure_;  // why there is no model
  std::atomic<bool> draining_{false}, closing_{false};
  WorkQueue parsers_, pages_;  // last: they end before what they use
};

}  // namespace quire
