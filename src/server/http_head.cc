#include "server/http_head.h"

#include <algorithm>

#include "base/ascii.h"

namespace quire {
namespace {

auto Named(std::string_view name) {
  return [name = Lower(name)](const auto& header) { return Lower(header.first) == name; };
}

std::optional<HttpFault> BadInput(int status, std::string message) {
  return HttpFault{status, "bad_input", std::move(message)};
}

}  // namespace

Authority ParseAuthority(std::string_view text) {
  const size_t bracket = text.starts_with('[') ? text.find(']') : 0;
  const size_t colon = text.find(':', bracket == text.npos ? 0 : bracket);
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.ends_with('.')) host.remove_suffix(1);
  return {Lower(host), std::string(colon == text.npos ? "" : text.substr(colon + 1))};
}

void SetTarget(std::string_view target, HttpRequest* request) {
  const size_t scheme_end = target.find("://");
  const std::string scheme = Lower(target.substr(0, scheme_end == target.npos ? 0 : scheme_end));
  if (scheme == "http" || scheme == "https") {
    target.remove_prefix(scheme_end + 3);
    const size_t end = std::min(target.find_first_of("/?"), target.size());
    std::erase_if(request->headers, Named("Host"));
    request->headers.emplace_back("Host", target.substr(0, end));
    target.remove_prefix(end);
  }
  const size_t mark = target.find('?');
  request->path = std::string(target.substr(0, mark));
  if (request->path.empty()) request->path = "/";
  request->query = std::string(mark == target.npos ? "" : target.substr(mark + 1));
}

std::optional<HttpFault> CheckHead(const HttpRequest& request, unsigned version) {
  const auto count = [&](std::string_view name) { return std::ranges::count_if(request.headers, Named(name)); };
  if (version != 11 && version != 10) return BadInput(505, "wanted HTTP/1.1");
  const auto hosts = count("Host");
  if (hosts > 1 || (hosts == 0 && version == 11))
    return BadInput(400, "wanted one header Host, found " + std::string(hosts > 1 ? "several" : "none"));
  // What another server would take for the end of this request must be its end here too (RFC 9112, section 6.1).
  const auto codings = count("Transfer-Encoding");
  if (codings > 1 || (codings == 1 && (version == 10 || count("Content-Length") > 0 ||
                                       Lower(request.Header("Transfer-Encoding")) != "chunked")))
    return BadInput(400, "wanted the Transfer-Encoding chunked or none, and not beside a Content-Length");
  if (version == 11 && count("Expect") > 0 && Lower(request.Header("Expect")) != "100-continue")
    return BadInput(417, "wanted the expectation 100-continue or none");
  return std::nullopt;
}

}  // namespace quire
