#include "server/http_guard.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/ascii.h"
#include "server/http_head.h"

namespace quire {
namespace {

constexpr std::array<std::string_view, 3> kHarmless = {"GET", "HEAD", "OPTIONS"};

bool Holds(const std::vector<std::string>& list, std::string_view wanted) {
  return std::ranges::any_of(list, [&](const std::string& entry) { return entry == "*" || entry == wanted; });
}

bool IsAddress(const std::string& host) {
  in6_addr parsed;  // large enough for both
  return inet_pton(AF_INET, host.c_str(), &parsed) == 1 || inet_pton(AF_INET6, host.c_str(), &parsed) == 1;
}

bool IsLoopback(const std::string& host) {
  return host == "localhost" || host.ends_with(".localhost") || host == "::1" ||
         (host.starts_with("127.") && IsAddress(host));
}

// "https://host:port" against a header Host.
bool IsSame(std::string_view origin, std::string_view host) {
  const size_t scheme_end = origin.find("://");
  if (scheme_end == origin.npos) return false;  // "null"
  const std::string default_port = origin.starts_with("https:") ? "443" : "80";
  Authority theirs = ParseAuthority(origin.substr(scheme_end + 3)), ours = ParseAuthority(host);
  for (Authority* side : {&theirs, &ours})
    if (side->port.empty()) side->port = default_port;
  return theirs.host == ours.host && theirs.port == ours.port;
}

}  // namespace

HttpGuard::HttpGuard(std::string_view listens_at, std::vector<std::string> origins, std::vector<std::string> hosts)
    : on_loopback_(IsLoopback(Lower(listens_at))), origins_(std::move(origins)), hosts_(std::move(hosts)) {
  for (std::string& host : hosts_) host = ParseAuthority(host).host;
}

bool HttpGuard::AllowsOrigin(std::string_view origin) const {
  return Holds(origins_, origin);
}

bool HttpGuard::AllowsHost(const std::string& host) const {
  return IsLoopback(host) || IsAddress(host) || Holds(hosts_, host);
}

std::optional<ApiError> HttpGuard::Refuse(const HttpRequest& head, bool keyed) const {
  const std::string_view host = head.Header("Host"), origin = head.Header("Origin");
  if (on_loopback_ && !keyed && !host.empty() && !AllowsHost(ParseAuthority(host).host))
    return ApiError(421, "host_not_allowed",
                    "this server is not known as \"" + Shown(host) + "\": --allowed-host lets others in");
  if (!origin.empty() && !std::ranges::count(kHarmless, head.method) && !IsSame(origin, host) && !AllowsOrigin(origin))
    return ApiError(403, "origin_not_allowed",
                    "pages of \"" + Shown(origin) + "\" may not call this server: --cors-origin lets others in");
  return std::nullopt;
}

HttpHeaders HttpGuard::ReplyHeaders(const HttpRequest& head) const {
  const std::string_view origin = head.Header("Origin");
  if (origin.empty() || origins_.empty()) return {};
  const bool all = std::ranges::count(origins_, "*") > 0;
  HttpHeaders headers;
  if (!all) headers.emplace_back("Vary", "Origin");
  if (!AllowsOrigin(origin)) return headers;
  headers.emplace_back("Access-Control-Allow-Origin", all ? "*" : origin);
  headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Retry-After, X-Should-Retry");
  return headers;
}

}  // namespace quire
