// Which web pages may call: a browser sends what any page asks for, to addresses that only its user can reach.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"
#include "server/http.h"

namespace quire {

// Any thread.
class HttpGuard {
 public:
  // listens_at: the address or name that was asked for. origins, hosts: allowed beside the server's own; "*": all.
  HttpGuard(std::string_view listens_at, std::vector<std::string> origins, std::vector<std::string> hosts);

  bool allows_origins() const { return !origins_.empty(); }

  // Why a request is not served. keyed: whether the server wants keys.
  // 403: it changes something or costs something, and comes from a page of another origin.
  // 421: the server has no keys and listens on loopback, and the host that the client took it for is neither loopback,
  // nor an address, nor one that is allowed: a name that someone else has led here (DNS rebinding), whose pages the
  // browser takes for the server's own.
  std::optional<ApiError> Refuse(const HttpRequest& head, bool keyed) const;
  // What tells a browser whether the page may read the reply.
  HttpHeaders ReplyHeaders(const HttpRequest& head) const;

 private:
  bool AllowsOrigin(std::string_view origin) const;
  bool AllowsHost(const std::string& host) const;

  bool on_loopback_;
  std::vector<std::string> origins_, hosts_;
};

}  // namespace quire
