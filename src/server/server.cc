#include "server/server.h"

#include <utility>

namespace quire {
namespace {

ApiOptions WithHost(ApiOptions options, const std::string& host) {
  options.host = host;
  return options;
}

}  // namespace

Server::Server(const ServerOptions& options, std::function<std::unique_ptr<ServedModel>()> load)
    : api_(WithHost(options.api, options.http.host)), http_(std::make_unique<HttpServer>(options.http, api_)) {
  loading_ = std::async(std::launch::async, [this, load = std::move(load)] {
    try {
      api_.SetModel(load());
    } catch (const std::exception& error) {
      api_.SetFailed(error.what());
      throw;
    }
  });
}

Server::~Server() {
  if (loading_.valid()) loading_.wait();
  http_->Close();
  api_.Close();
}

bool Server::Loaded(std::chrono::milliseconds wait) {
  if (!loading_.valid()) return true;
  if (loading_.wait_for(wait) != std::future_status::ready) return false;
  loading_.get();
  return true;
}

bool Server::Drain(std::chrono::milliseconds limit) {
  api_.Drain();
  http_->Drain();
  return http_->WaitUntilQuiet(limit);
}

void Server::EndReplies() {
  constexpr std::chrono::milliseconds kPatience{1000};
  api_.EndPages();
  if (http_->WaitUntilQuiet(kPatience)) return;
  http_->EndReplies();  // what waits for a worker, and where the device hangs
  http_->WaitUntilQuiet(kPatience);
}

}  // namespace quire
