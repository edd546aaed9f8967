#include "server/api_error.h"

#include <cstdio>
#include <new>
#include <utility>

#include "base/utf8.h"

namespace quire {
namespace {

std::string_view TypeOf(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

constexpr size_t kMostShown = 60, kMostOfMessage = 1000, kMostOfParam = 200;

// At most so many bytes of a text, which may be a client's: control characters as "\x00", what is no UTF-8 as U+FFFD.
std::string OneLine(std::string_view text, size_t most_bytes) {
  std::string_view kept = text.substr(0, most_bytes);
  if (kept.size() < text.size()) kept.remove_suffix(IncompleteUtf8Tail(kept));
  std::string line;
  for (const char c : RepairUtf8(kept)) {
    const unsigned code = static_cast<unsigned char>(c);
    char escaped[8] = {c};
    if (code < ' ' || code == 127) std::snprintf(escaped, sizeof escaped, "\\x%02x", code);
    line += escaped;
  }
  return line + (kept.size() < text.size() ? "..." : "");
}

}  // namespace

std::string Shown(std::string_view text) {
  return OneLine(text, kMostShown);
}

ApiError::ApiError(const Error& error)
    : ApiError(Info(error.kind()).http_status, std::string(Info(error.kind()).name), error.text(), error.where()) {
  if (error.kind() == ErrorKind::kBusy || error.kind() == ErrorKind::kDeviceLost)
    headers.emplace_back("Retry-After", "1");
}

ApiError EndingError(std::string message) {
  ApiError error(503, "draining", std::move(message));
  error.headers.emplace_back("Retry-After", "2");
  return error;
}

Error FieldError(std::string field, std::string message, std::string hint) {
  return {ErrorKind::kUsage, std::move(message), std::move(field), std::move(hint)};
}

ApiError CurrentApiError() {
  try {
    throw;
  } catch (const ApiError& error) {
    return error;
  } catch (const Error& error) {
    return ApiError(error);
  } catch (const std::bad_alloc&) {
    return ApiError(Error(ErrorKind::kOutOfMemory, "host memory does not suffice"));
  } catch (const std::exception& error) {
    return ApiError(Error(ErrorKind::kInternal, error.what()));
  }
}

Json ToJson(const ApiError& error) {
  return Json::Object{
      {"error", Json::Object{{"message", OneLine(error.message, kMostOfMessage)},
                             {"type", TypeOf(error.status)},
                             {"param", error.param.empty() ? Json() : Json(OneLine(error.param, kMostOfParam))},
                             {"code", error.code}}}};
}

HttpResponse ToResponse(const ApiError& error) {
  HttpHeaders headers = error.headers;
  // OpenAI's clients try again after any 5xx, unless they are told that it is of no use.
  if (error.status == 501 || error.status == 504) headers.emplace_back("X-Should-Retry", "false");
  return {
      .status = error.status, .body = ToJson(error).Dump() + "\n", .headers = std::move(headers), .error = error.code};
}

}  // namespace quire
