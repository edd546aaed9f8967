// HTTP as the rest of the server sees it: requests that are whole, replies that any thread may write.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "POST"
  std::string path;    // of the target, before "?", as sent
  std::string query;   // after it
  HttpHeaders headers;
  std::string body;
  std::string client;  // its address
  std::string id;      // X-Request-Id: the client's, or one of our own
  std::chrono::steady_clock::time_point received;

  // The first header of this name, case ignored; empty when absent.
  std::string_view Header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  HttpHeaders headers;  // more
  std::string error;    // the code of the error that it is; empty: it is none
};

// Why there is no request, or no reply.
struct HttpFault {
  int status;  // 0: nobody to answer to
  std::string code, message;
};

// The reply to one request. Any thread; the server keeps it until it is sent or the client has left. Either Send, or
// Begin, any number of Writes, and End; what comes after the client has left is dropped.
class HttpReply {
 public:
  virtual ~HttpReply() = default;
  virtual void Send(HttpResponse response) = 0;
  virtual void Begin(HttpResponse head) = 0;  // head.body: its first piece
  virtual void Write(std::string_view piece) = 0;
  virtual void End(std::string_view error) = 0;  // as HttpResponse::error
  // When nothing has been sent by then, the client gets `late`, and what comes afterwards is dropped as if it had left.
  virtual void Limit(std::chrono::steady_clock::time_point until, HttpResponse late) = 0;
  // Whether anybody still waits for the reply. A client that closes its writing side counts as gone.
  virtual bool gone() const = 0;
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // All are called on the server's thread and must be quick.
  // Before the body is read: a response ends the request there.
  virtual std::optional<HttpResponse> Refuse(const HttpRequest& head) = 0;
  virtual void Handle(std::shared_ptr<HttpRequest> request, std::shared_ptr<HttpReply> reply) = 0;
  // What the server says without asking: a request that is no HTTP, too large, too slow.
  virtual HttpResponse Fault(const HttpFault& fault) = 0;
  // What a stream says at last that the server must cut.
  virtual std::string LastWords(const HttpRequest& request) = 0;
  // What every reply to this request says in its head.
  virtual HttpHeaders CommonHeaders(const HttpRequest& request) = 0;
  // How many connections there are, whenever that changes.
  virtual void OnConnections(int count) = 0;
  // After the last byte: for log and counts. status 499: the client left. error: as HttpResponse::error.
  virtual void Ended(const HttpRequest& request, int status, std::string_view error, int64_t bytes, double ms) = 0;
};

std::string_view ReasonPhrase(int status);

}  // namespace quire
