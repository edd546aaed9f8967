// HTTP/1.1 over TCP or TLS: connections, their limits and timeouts.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "server/http.h"

namespace quire {

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  int port = 8000;                       // 0: the system chooses
  std::string tls_certificate, tls_key;  // PEM files; both or none
  int max_connections = 2000;
  int64_t max_header_bytes = 16 << 10;
  int64_t max_body_bytes = 64 << 20;
  int64_t max_bodies_bytes = int64_t{2} << 30;  // of all requests at once
  std::chrono::milliseconds header_timeout{10'000}, body_timeout{120'000}, idle_timeout{75'000}, write_timeout{30'000};
};

// One thread of its own. The handler must outlive the server.
class HttpServer {
 public:
  // Binds and begins to answer. Throws Error{kUsage} for an address or port that cannot be had, {kBadInput, kNotFound}
  // for certificate and key.
  HttpServer(const HttpServerOptions& options, HttpHandler& handler);
  ~HttpServer();  // as Close
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;

  // From now on each reply ends its connection, and a body that is still on its way is refused. Any thread.
  void Drain();
  // Waits at most `limit` until no reply is under way.
  bool WaitUntilQuiet(std::chrono::milliseconds limit);
  // Every reply that has not begun is a fault (503), every stream ends with the handler's last words. Any thread.
  void EndReplies();
  // Ends all connections and the thread.
  void Close();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
