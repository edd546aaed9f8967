// The server: HTTP, the API, and a model that is loaded while it answers already.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>

#include "server/api.h"
#include "server/http_server.h"

namespace quire {

struct ServerOptions {
  HttpServerOptions http;
  ApiOptions api;
};

class Server {
 public:
  // Listens at once; load runs on a thread of its own. Throws as HttpServer and Api do.
  Server(const ServerOptions& options, std::function<std::unique_ptr<ServedModel>()> load);
  ~Server();  // ends at once

  int port() const { return http_->port(); }
  // Whether loading has ended within `wait`; throws what load threw.
  bool Loaded(std::chrono::milliseconds wait);
  // Reads the file of keys again; throws as Keys::Reload does.
  void ReloadKeys() { api_.ReloadKeys(); }
  // No new requests; what runs may go on. Whether none is left within `limit`.
  bool Drain(std::chrono::milliseconds limit);
  // After Drain: what still runs gets an error, in the form of its kind while the device answers.
  void EndReplies();

 private:
  Api api_;
  std::unique_ptr<HttpServer> http_;
  std::future<void> loading_;
};

}  // namespace quire
