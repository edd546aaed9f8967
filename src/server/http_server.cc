#include "server/http_server.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <limits>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <variant>

#include "base/ascii.h"
#include "base/error.h"
#include "server/http_head.h"

namespace quire {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr auto kUse = asio::as_tuple(asio::use_awaitable);
constexpr size_t kReadBytes = 16 << 10;
constexpr int kSendBufferBytes = 128 << 10;  // of the system: a client that does not read is noticed after these
constexpr size_t kWriteBytes = 32 << 10;
constexpr size_t kMostPipelinedBytes = 256 << 10;  // read while a reply is under way; a client that sends more is cut
constexpr const char* kDraining = "draining";      // the code of what is refused or cut at the end
constexpr auto kLinger = std::chrono::milliseconds(1000);  // for a client to read a reply that comes before its body

// A TCP connection, with or without TLS.
class ByteStream {
 public:
  ByteStream(tcp::socket socket, asio::ssl::context* tls) {
    if (tls) {
      stream_.emplace<Tls>(std::move(socket), *tls);
    } else {
      stream_.emplace<tcp::socket>(std::move(socket));
    }
  }

  tcp::socket& socket() {
    if (auto* tls = std::get_if<Tls>(&stream_)) return tls->next_layer();
    return std::get<tcp::socket>(stream_);
  }
  bool is_tls() const { return std::holds_alternative<Tls>(stream_); }

  awaitable<error_code> Handshake() {
    if (auto* tls = std::get_if<Tls>(&stream_)) {
      const auto [error] = co_await tls->async_handshake(asio::ssl::stream_base::server, kUse);
      co_return error;
    }
    co_return error_code();
  }
  awaitable<std::pair<error_code, size_t>> Read(asio::mutable_buffer into) {
    if (auto* tls = std::get_if<Tls>(&stream_)) {
      const auto [error, bytes] = co_await tls->async_read_some(into, kUse);
      co_return std::pair(error, bytes);
    }
    const auto [error, bytes] = co_await std::get<tcp::socket>(stream_).async_read_some(into, kUse);
    co_return std::pair(error, bytes);
  }
  awaitable<error_code> Write(asio::const_buffer bytes) {
    if (auto* tls = std::get_if<Tls>(&stream_)) {
      const auto [error, written] = co_await asio::async_write(*tls, bytes, kUse);
      co_return error;
    }
    const auto [error, written] = co_await asio::async_write(std::get<tcp::socket>(stream_), bytes, kUse);
    co_return error;
  }
  void ShutdownSend() {
    error_code ignored;
    socket().shutdown(tcp::socket::shutdown_send, ignored);
  }
  void Close() {
    error_code ignored;
    socket().close(ignored);
  }

 private:
  using Tls = asio::ssl::stream<tcp::socket>;
  std::variant<std::monostate, tcp::socket, Tls> stream_;
};

// A reply on its way from the threads that write it to the connection that sends it.
class Reply : public HttpReply {
 public:
  // wake: tells the connection, on any thread, that there is something to do.
  explicit Reply(std::function<void()> wake) : wake_(std::move(wake)) {}

  void Send(HttpResponse response) override {
    Put([&] {
      if (begun_) return;
      begun_ = ended_ = true;
      head_ = std::move(response);
    });
  }
  void Begin(HttpResponse head) override {
    Put([&] {
      if (begun_) return;
      begun_ = streamed_ = true;
      head_ = std::move(head);
    });
  }
  void Write(std::string_view piece) override {
    Put([&] {
      if (!gone_ && streamed_ && !ended_) pieces_ += piece;
    });
  }
  void End(std::string_view error) override {
    Put([&] {
      ended_ = true;
      head_.error = error;
    });
  }
  void Limit(Clock::time_point until, HttpResponse late) override {
    Put([&] {
      until_ = until;
      late_ = std::move(late);
    });
  }
  bool gone() const override { return gone_; }

  // The rest is the connection's.
  struct State {
    bool begun, streamed, ended;
    std::string pieces;       // of a stream, since the last call
    Clock::time_point until;  // the limit while nothing has begun
  };
  State Take() {
    std::lock_guard lock(mutex_);
    told_ = false;
    return {begun_, streamed_, ended_, std::exchange(pieces_, {}), begun_ ? Clock::time_point::max() : until_};
  }
  // Once begun.
  const HttpResponse& head() const { return head_; }
  HttpResponse late() const {
    std::lock_guard lock(mutex_);
    return late_;
  }
  void SetGone() {
    std::lock_guard lock(mutex_);
    gone_ = true;
    pieces_.clear();
  }

 private:
  template <typename Change>
  void Put(Change change) {
    {
      std::lock_guard lock(mutex_);
      change();
      if (std::exchange(told_, true)) return;
    }
    wake_();
  }

  std::function<void()> wake_;
  mutable std::mutex mutex_;
  HttpResponse head_, late_;
  Clock::time_point until_ = Clock::time_point::max();
  std::string pieces_;
  bool begun_ = false, streamed_ = false, ended_ = false;
  bool told_ = false;  // the connection has not looked since
  std::atomic<bool> gone_{false};
};

// A request id that is safe in a header and a log line.
bool IsSaneId(std::string_view id) {
  return !id.empty() && id.size() <= 128 &&
         std::ranges::all_of(id, [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; });
}

enum class Body { kWhole, kChunked, kUntilClose };

std::string HeadBytes(const HttpResponse& response, const HttpRequest& request, const HttpHeaders& common, Body body,
                      bool close) {
  std::string head = "HTTP/1.1 " + std::to_string(response.status) + " " + std::string(ReasonPhrase(response.status)) +
                     "\r\nServer: quire\r\n";
  auto add = [&](std::string_view name, std::string_view value) {
    head.append(name).append(": ").append(value).append("\r\n");
  };
  const bool has_body = response.status != 204;
  if (has_body) add("Content-Type", response.content_type);
  if (!request.id.empty()) add("X-Request-Id", request.id);
  for (const HttpHeaders* headers : {&response.headers, &common})
    for (const auto& [name, value] : *headers) add(name, value);
  if (body == Body::kChunked) {
    add("Transfer-Encoding", "chunked");
  } else if (body == Body::kWhole && has_body) {
    add("Content-Length", std::to_string(response.body.size()));
  }
  add("Connection", close ? "close" : "keep-alive");
  return head + "\r\n";
}

std::string Chunk(const std::string& piece) {
  char size[20];
  std::snprintf(size, sizeof size, "%zx\r\n", piece.size());
  return size + piece + "\r\n";
}

}  // namespace

std::string_view HttpRequest::Header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key.size() == name.size() && Lower(key) == Lower(name)) return value;
  return {};
}

std::string_view ReasonPhrase(int status) {
  if (status == 499) return "Client Closed Request";
  return std::string_view(http::obsolete_reason(static_cast<http::status>(status)));
}

// All of it but the atomics is touched on the server's thread alone, once it runs.
class HttpServer::Impl {
 public:
  Impl(const HttpServerOptions& options, HttpHandler& handler) : options_(options), handler_(handler) {
    if (!options.tls_certificate.empty() || !options.tls_key.empty()) LoadTls();
    Bind();
    asio::co_spawn(context_, Accept(), asio::detached);
    thread_ = std::thread([this] { context_.run(); });
  }
  ~Impl() { Close(); }

  int port() const { return port_; }
  void Drain();
  void EndReplies() {
    ending_ = true;
    WakeAll();
  }
  bool WaitUntilQuiet(std::chrono::milliseconds limit) {
    std::unique_lock lock(quiet_mutex_);
    return quiet_.wait_for(lock, limit, [&] { return replies_ == 0; });
  }
  void Close();

 private:
  class Connection;

  void LoadTls();
  void Bind();
  awaitable<void> Accept();
  void WakeAll();
  void ReplyBegins() {
    std::lock_guard lock(quiet_mutex_);
    ++replies_;
  }
  void ReplyEnds() {
    {
      std::lock_guard lock(quiet_mutex_);
      --replies_;
    }
    quiet_.notify_all();
  }

  HttpServerOptions options_;
  HttpHandler& handler_;
  asio::io_context context_{1};
  std::optional<asio::ssl::context> tls_;
  tcp::acceptor acceptor_{context_};
  int port_ = 0;
  std::thread thread_;
  std::set<Connection*> all_;
  int64_t bodies_bytes_ = 0;  // announced or read, of all requests
  bool closing_ = false;
  int connections_ = 0;
  std::atomic<bool> draining_{false}, ending_{false};
  std::mt19937_64 random_{std::random_device()()};

  std::mutex quiet_mutex_;
  std::condition_variable quiet_;
  int replies_ = 0;
};

// Two coroutines: one reads whatever comes, so that a client's leaving is seen at any time; the other makes requests of
// it and sends replies. They, and replies, wake the second through a timer that never fires by itself.
class HttpServer::Impl::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Impl& server, tcp::socket socket)
      : server_(server),
        stream_(std::move(socket), server.tls_ ? &*server.tls_ : nullptr),
        wake_(server.context_),
        room_(server.context_),
        limit_(server.context_) {
    error_code ignored;
    const auto client = stream_.socket().remote_endpoint(ignored);
    client_ = client.address().to_string();
    stream_.socket().set_option(tcp::no_delay(true), ignored);
    stream_.socket().set_option(asio::socket_base::send_buffer_size(kSendBufferBytes), ignored);
    server_.all_.insert(this);
    server_.handler_.OnConnections(++server_.connections_);
  }
  ~Connection() {
    server_.all_.erase(this);
    server_.handler_.OnConnections(--server_.connections_);
  }

  awaitable<void> Run() {
    const auto self = shared_from_this();
    if (co_await Greet()) {
      asio::co_spawn(server_.context_, ReadAll(), asio::detached);
      while (co_await Exchange()) {
      }
    }
    Kill();
  }

  void Wake() { wake_.cancel(); }
  void Kill() {
    killed_ = true;
    stream_.Close();
    Wake();
    room_.cancel();
  }

 private:
  using Fault = HttpFault;
  struct BodyShare {  // of the limit over all bodies
    Impl& server;
    int64_t bytes = 0;
    bool Grow(int64_t more) {
      if (server.bodies_bytes_ + more > server.options_.max_bodies_bytes) return false;
      server.bodies_bytes_ += more;
      bytes += more;
      return true;
    }
    ~BodyShare() { server.bodies_bytes_ -= bytes; }
  };
  using Parser = http::request_parser<http::string_body>;

  awaitable<bool> Greet() {
    if (!stream_.is_tls()) co_return true;
    Limit(server_.options_.header_timeout);
    const error_code error = co_await stream_.Handshake();
    limit_.cancel();
    co_return !error;
  }

  awaitable<void> ReadAll() {
    const auto self = shared_from_this();
    while (!closed_) {
      while (in_.size() >= most_buffered_ && !killed_) {
        room_.expires_at(Clock::time_point::max());
        co_await room_.async_wait(kUse);
      }
      if (killed_) break;
      const auto [error, bytes] = co_await stream_.Read(asio::buffer(read_));
      in_.commit(asio::buffer_copy(in_.prepare(bytes), asio::buffer(read_, bytes)));
      if (error) closed_ = true;
      Wake();
    }
    closed_ = true;
    Wake();
  }

  // Until something has changed; false: it is `until` instead.
  awaitable<bool> Changed(Clock::time_point until) {
    wake_.expires_at(until);
    const auto [error] = co_await wake_.async_wait(kUse);
    co_return error == asio::error::operation_aborted;
  }
  void Consume(size_t bytes) {
    in_.consume(bytes);
    room_.cancel();
  }

  void Limit(std::chrono::milliseconds limit) {
    limit_.expires_after(limit);
    limit_.async_wait([self = shared_from_this()](error_code error) {
      if (!error) self->Kill();
    });
  }
  awaitable<bool> Send(const std::string& bytes) {
    if (killed_) co_return false;
    for (size_t at = 0; at < bytes.size(); at += kWriteBytes) {  // the limit is for each piece
      const size_t count = std::min(kWriteBytes, bytes.size() - at);
      Limit(server_.options_.write_timeout);
      const error_code error = co_await stream_.Write(asio::buffer(bytes.data() + at, count));
      limit_.cancel();
      if (error || killed_) co_return false;
      sent_bytes_ += static_cast<int64_t>(count);
    }
    co_return true;
  }

  // Feeds the parser until done() or a fault. most_bytes: of a header; a body has its limit in the parser.
  // share: of a body, grows with it.
  template <typename Done>
  awaitable<std::optional<Fault>> Parse(Parser& parser, Clock::time_point until, std::string_view what,
                                        int64_t most_bytes, BodyShare* share, Done done) {
    int64_t parsed_bytes = 0;
    while (!done()) {
      if (in_.size() > 0) {
        error_code error;
        const size_t used = parser.put(in_.cdata(), error);
        Consume(used);
        parsed_bytes += static_cast<int64_t>(used);
        if (parsed_bytes > most_bytes) co_return FaultOf(http::error::header_limit);
        if (share && !share->Grow(static_cast<int64_t>(used)))
          co_return Fault{503, "busy", "too many large requests at once: try again"};
        if (share && parsed_bytes - BodyBytes(parser) > MostFramingBytes(parser)) co_return FramingTooLarge();
        if (error == http::error::need_more) {
          error = {};
          if (used > 0 && !done() && in_.size() > 0) continue;
          if (share && in_.size() > static_cast<size_t>(server_.options_.max_header_bytes)) co_return FramingTooLarge();
        } else if (error) {
          co_return FaultOf(error);
        } else {
          continue;
        }
        if (done()) break;
      }
      if (killed_ || closed_) co_return Fault{0, "", ""};
      if (share && server_.draining_) co_return Fault{503, kDraining, "the server is about to end"};
      if (!co_await Changed(until))
        co_return Fault{408, "deadline", "the " + std::string(what) + " did not come in time"};
    }
    co_return std::nullopt;
  }

  Fault FaultOf(error_code error) const {
    if (error == http::error::header_limit || error == http::error::buffer_overflow)
      return {431, "too_large",
              "wanted headers of at most " + std::to_string(server_.options_.max_header_bytes) + " bytes, found more"};
    if (error == http::error::body_limit) return BodyTooLarge();
    return {400, "bad_input", "this is no HTTP request: " + error.message()};
  }
  // Of a body in chunks: what is no content. Chunks of one byte have five of it each.
  static int64_t BodyBytes(const Parser& parser) { return static_cast<int64_t>(parser.get().body().size()); }
  int64_t MostFramingBytes(const Parser& parser) const {
    return server_.options_.max_header_bytes + 8 * BodyBytes(parser);
  }
  Fault FramingTooLarge() const {
    return {400, "bad_input",
            "wanted extensions of chunks and trailers of at most " + std::to_string(server_.options_.max_header_bytes) +
                " bytes, found more"};
  }
  Fault BodyTooLarge() const {
    return {413, "too_large",
            "wanted a body of at most " + std::to_string(server_.options_.max_body_bytes) + " bytes, found more"};
  }

  // Whether no request has begun. Empty lines before one are passed over (RFC 9112, section 2.2).
  bool IsIdle() {
    const auto begins_with = [&](std::string_view text) {
      return std::string_view(static_cast<const char*>(in_.cdata().data()), std::min(in_.size(), text.size())) == text;
    };
    while (begins_with("\r\n")) Consume(2);
    return in_.size() == 0 || (in_.size() == 1 && begins_with("\r"));
  }

  // One request and its reply; false: the connection ends.
  awaitable<bool> Exchange() {
    const HttpServerOptions& limits = server_.options_;
    most_buffered_ = kReadBytes;
    const auto begun = Clock::now();
    const auto idle_end = begun + (requests_ == 0 ? limits.header_timeout : limits.idle_timeout);
    while (IsIdle()) {
      if (killed_ || closed_ || (server_.draining_ && requests_ > 0)) co_return false;
      if (!co_await Changed(idle_end)) co_return false;
    }
    ++requests_;
    sent_bytes_ = 0;
    auto request = std::make_shared<HttpRequest>();
    request->client = client_;
    request->id = NewId();
    request->received = Clock::now();

    auto parser = std::make_unique<Parser>();
    parser->header_limit(static_cast<uint32_t>(limits.max_header_bytes));
    parser->body_limit(static_cast<uint64_t>(limits.max_body_bytes));
    parser->eager(false);
    auto fault = co_await Parse(*parser, request->received + limits.header_timeout, "header", limits.max_header_bytes,
                                nullptr, [&] { return parser->is_header_done(); });
    if (!fault) fault = Head(*parser, *request);
    if (fault) co_return co_await Refuse(*request, *fault);
    chunked_ = parser->get().version() == 11;
    keep_alive_ = parser->get().keep_alive() && chunked_;

    server_.ReplyBegins();
    const bool goes_on = co_await Answer(*parser, request);
    server_.ReplyEnds();
    co_return goes_on;
  }

  std::optional<Fault> Head(const Parser& parser, HttpRequest& request) {
    const auto& head = parser.get();
    request.method = std::string(head.method_string());
    for (const auto& field : head)
      request.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
    if (const std::string_view id = request.Header("X-Request-Id"); IsSaneId(id)) request.id = std::string(id);
    auto fault = CheckHead(request, head.version());
    SetTarget({head.target().data(), head.target().size()}, &request);
    return fault;
  }

  awaitable<bool> Answer(Parser& parser, std::shared_ptr<HttpRequest> request) {
    const HttpServerOptions& limits = server_.options_;
    if (auto refusal = server_.handler_.Refuse(*request)) {
      const bool body_follows = !parser.is_done() && !IsBodyless(parser);
      co_return co_await SendWhole(*request, *refusal, body_follows);
    }
    BodyShare share{server_};
    if (chunked_ && Lower(request->Header("Expect")) == "100-continue" && in_.size() == 0) {
      const std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
      if (!co_await Send(go_on)) co_return false;
    }
    most_buffered_ = 1 << 20;
    parser.eager(true);
    const auto fault = co_await Parse(parser, request->received + limits.body_timeout, "body",
                                      std::numeric_limits<int64_t>::max(), &share, [&] { return parser.is_done(); });
    if (fault) co_return co_await Refuse(*request, *fault);
    request->body = std::move(parser.get().body());
    most_buffered_ = kMostPipelinedBytes;

    const auto reply = std::make_shared<Reply>([weak = weak_from_this(), &context = server_.context_] {
      asio::post(context, [weak] {
        if (const auto self = weak.lock()) self->Wake();
      });
    });
    server_.handler_.Handle(request, reply);
    co_return co_await SendReply(*request, *reply);
  }

  static bool IsBodyless(const Parser& parser) { return !parser.chunked() && parser.content_length().value_or(0) == 0; }

  awaitable<bool> SendReply(const HttpRequest& request, Reply& reply) {
    bool head_sent = false;
    for (;;) {
      const Reply::State state = reply.Take();
      const bool close = !keep_alive_ || server_.draining_;
      std::string out;
      if (state.begun && !state.streamed) {
        const bool sent = co_await SendWhole(request, reply.head(), false);
        co_return sent;
      }
      if (state.begun && !head_sent) {
        head_sent = true;
        out = HeadBytes(reply.head(), request, server_.handler_.CommonHeaders(request),
                        chunked_ ? Body::kChunked : Body::kUntilClose, close);
        if (!reply.head().body.empty()) out += Piece(reply.head().body);
      }
      if (!state.pieces.empty()) out += Piece(state.pieces);
      const bool last = state.ended && head_sent;
      if (last && chunked_) out += "0\r\n\r\n";
      if (!out.empty() && !co_await Send(out)) {
        Leave(request, reply);
        co_return false;
      }
      if (last) {
        Log(request, reply.head().status, reply.head().error);
        if (close) co_await Linger();
        co_return !close;
      }
      if (closed_ || killed_) {
        Leave(request, reply);
        co_return false;
      }
      if (!out.empty()) continue;  // more may have come meanwhile
      if (server_.ending_) {
        reply.SetGone();
        co_return co_await Cut(request, reply, head_sent);
      }
      if (Clock::now() >= state.until) {
        reply.SetGone();
        const HttpResponse late = reply.late();
        co_return co_await SendWhole(request, late, false);
      }
      if (in_.size() >= kMostPipelinedBytes) {  // nothing is read any more: this client's leaving would not be seen
        if (head_sent) {
          Leave(request, reply);
          co_return false;
        }
        reply.SetGone();
        const Fault fault{400, "bad_input",
                          "wanted at most " + std::to_string(kMostPipelinedBytes) +
                              " bytes of further requests before the reply to this one, found more"};
        co_return co_await Refuse(request, fault);
      }
      co_await Changed(state.until);
    }
  }

  // The end of a reply that nobody waits for any more.
  awaitable<bool> Cut(const HttpRequest& request, const Reply& reply, bool begun) {
    if (!begun) {
      const Fault fault{503, kDraining, "the server ended before there was a reply"};
      co_return co_await Refuse(request, fault);
    }
    std::string out = Piece(server_.handler_.LastWords(request));
    if (chunked_) out += "0\r\n\r\n";
    co_await Send(out);
    Log(request, reply.head().status, kDraining);
    co_await Linger();
    co_return false;
  }

  // Of a streamed body.
  std::string Piece(const std::string& text) const { return chunked_ ? Chunk(text) : text; }

  void Leave(const HttpRequest& request, Reply& reply) {
    reply.SetGone();
    Log(request, 499, "");
  }

  awaitable<bool> SendWhole(const HttpRequest& request, const HttpResponse& response, bool body_follows) {
    const bool close = !keep_alive_ || server_.draining_ || body_follows;
    std::string out = HeadBytes(response, request, server_.handler_.CommonHeaders(request), Body::kWhole, close);
    if (request.method != "HEAD" && response.status != 204) out += response.body;
    const bool sent = co_await Send(out);
    Log(request, sent ? response.status : 499, sent ? response.error : "");
    if (sent && close) co_await Linger();
    co_return sent && !close;
  }

  awaitable<bool> Refuse(const HttpRequest& request, const Fault& fault) {
    if (fault.status == 0) co_return false;
    keep_alive_ = false;
    const HttpResponse response = server_.handler_.Fault(fault);
    co_return co_await SendWhole(request, response, true);
  }

  // Closing while bytes of the client are unread would reset the connection, and the client might lose the reply. So
  // the client closes first, or has had its time. TLS cannot be read any more once it is shut down.
  awaitable<void> Linger() {
    if (!stream_.is_tls()) stream_.ShutdownSend();
    const auto until = Clock::now() + kLinger;
    while (!closed_ && !killed_ && Clock::now() < until) {
      Consume(in_.size());
      co_await Changed(until);
    }
  }

  void Log(const HttpRequest& request, int status, std::string_view error) {
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - request.received).count();
    server_.handler_.Ended(request, status, error, sent_bytes_, ms);
  }

  std::string NewId() {
    char text[24];
    std::snprintf(text, sizeof text, "req-%016llx", static_cast<unsigned long long>(server_.random_()));
    return text;
  }

  Impl& server_;
  ByteStream stream_;
  std::string client_;
  std::array<char, kReadBytes> read_;  // of the read under way, while what came before is consumed from in_
  boost::beast::flat_buffer in_;
  size_t most_buffered_ = kReadBytes;
  asio::steady_timer wake_, room_, limit_;
  bool closed_ = false;  // by the client, or broken
  bool killed_ = false;  // by us
  bool keep_alive_ = true;
  bool chunked_ = true;  // streamed bodies: HTTP/1.1
  int requests_ = 0;
  int64_t sent_bytes_ = 0;
};

void HttpServer::Impl::WakeAll() {
  asio::post(context_, [this] {
    for (Connection* connection : all_) connection->Wake();
  });
}

void HttpServer::Impl::Drain() {
  if (!draining_.exchange(true)) WakeAll();
}

void HttpServer::Impl::Close() {
  if (!thread_.joinable()) return;
  asio::post(context_, [this] {
    closing_ = true;
    error_code ignored;
    acceptor_.close(ignored);
    for (Connection* connection : all_) connection->Kill();
  });
  thread_.join();  // the context runs out of work when the last connection has ended
}

void HttpServer::Impl::LoadTls() {
  if (options_.tls_certificate.empty() || options_.tls_key.empty())
    throw Error(ErrorKind::kUsage, "wanted a certificate and its key, found one of them",
                options_.tls_certificate.empty() ? "--tls-cert" : "--tls-key");
  tls_.emplace(asio::ssl::context::tls_server);
  tls_->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                    asio::ssl::context::no_tlsv1_1);
  bool is_encrypted = false;  // OpenSSL asks the terminal for a passphrase, unless there is somebody else to ask
  tls_->set_password_callback([&](size_t, asio::ssl::context::password_purpose) {
    is_encrypted = true;
    return std::string();
  });
  auto load = [&](const std::string& file, const std::string& wanted, const std::string& hint, auto call) {
    std::error_code missing;
    if (!std::filesystem::exists(file, missing)) throw Error(ErrorKind::kNotFound, "no such file", file);
    error_code error;
    call(file, error);
    if (is_encrypted)
      throw Error(ErrorKind::kUnsupported, "wanted a key without a passphrase, found one with", file,
                  "openssl pkey -in FILE -out PLAIN takes it away; let nobody else read PLAIN");
    if (error) throw Error(ErrorKind::kBadInput, "wanted " + wanted + ", found none: " + error.message(), file, hint);
  };
  load(options_.tls_certificate, "a certificate in PEM", "its file has a line -----BEGIN CERTIFICATE-----",
       [&](const std::string& file, error_code& error) { tls_->use_certificate_chain_file(file, error); });
  load(options_.tls_key, "the key in PEM of the certificate " + options_.tls_certificate,
       "its file has a line -----BEGIN PRIVATE KEY-----", [&](const std::string& file, error_code& error) {
         tls_->use_private_key_file(file, asio::ssl::context::pem, error);
       });
  // The context keeps its callback, which must not look at this function's variables any more.
  tls_->set_password_callback([](size_t, asio::ssl::context::password_purpose) { return std::string(); });
}

void HttpServer::Impl::Bind() {
  auto fail = [&](const std::string& why) {
    throw Error(ErrorKind::kUsage, "cannot listen: " + why, options_.host + ":" + std::to_string(options_.port),
                "another --port, or is a server running there already?");
  };
  if (options_.host.empty()) throw Error(ErrorKind::kUsage, "wanted an address to listen at, found nothing", "--host");
  error_code error;
  tcp::resolver resolver(context_);
  const auto found = resolver.resolve(options_.host, std::to_string(options_.port), tcp::resolver::passive, error);
  if (error || found.empty())
    throw Error(ErrorKind::kUsage,
                "wanted an address of this machine, found \"" + options_.host + "\": " + error.message(), "--host",
                "127.0.0.1: this machine alone; 0.0.0.0: everywhere");
  const tcp::endpoint endpoint = *found.begin();
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) fail(error.message());
  port_ = acceptor_.local_endpoint().port();
}

awaitable<void> HttpServer::Impl::Accept() {
  while (!closing_) {
    auto [error, socket] = co_await acceptor_.async_accept(kUse);
    if (closing_) break;
    if (error) {  // no descriptor left, or the client is gone already
      asio::steady_timer pause(context_, std::chrono::milliseconds(50));
      co_await pause.async_wait(kUse);
      continue;
    }
    if (connections_ >= options_.max_connections) continue;  // closed at once
    const auto connection = std::make_shared<Connection>(*this, std::move(socket));
    asio::co_spawn(
        context_, [connection] { return connection->Run(); }, asio::detached);
  }
}

HttpServer::HttpServer(const HttpServerOptions& options, HttpHandler& handler)
    : impl_(std::make_unique<Impl>(options, handler)) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const {
  return impl_->port();
}
void HttpServer::Drain() {
  impl_->Drain();
}
void HttpServer::EndReplies() {
  impl_->EndReplies();
}
bool HttpServer::WaitUntilQuiet(std::chrono::milliseconds limit) {
  return impl_->WaitUntilQuiet(limit);
}
void HttpServer::Close() {
  impl_->Close();
}

}  // namespace quire
