// What the server obeys of a request's head beside what the parser does (RFC 9110, RFC 9112).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/http.h"

namespace quire {

// "Host:Port" taken apart. host: in lower case, without the brackets of IPv6 and a dot at its end; port: may be empty.
struct Authority {
  std::string host, port;
};
Authority ParseAuthority(std::string_view text);

// Fills path and query. A target in absolute form ("http://host/path") replaces the header Host (RFC 9112, 3.2.2).
void SetTarget(std::string_view target, HttpRequest* request);

// Why a request with this head has no meaning here. version: 11 for HTTP/1.1.
std::optional<HttpFault> CheckHead(const HttpRequest& request, unsigned version);

}  // namespace quire
