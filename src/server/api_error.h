// What a client is told when its request cannot be served, in the form of OpenAI's errors.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "server/http.h"

namespace quire {

struct ApiError : std::exception {
  ApiError(int http_status, std::string error_code, std::string text, std::string field = {})
      : status(http_status), code(std::move(error_code)), message(std::move(text)), param(std::move(field)) {}
  // As base/error.h maps its kind; its `where` is the field.
  explicit ApiError(const Error& error);
  const char* what() const noexcept override { return message.c_str(); }

  int status;
  std::string code;  // "usage", "model_not_found"
  std::string message;
  std::string param;  // path of the field, "messages[0].content"; may be empty
  HttpHeaders headers;
};

// A reply that cannot be given because the server ends: 503.
ApiError EndingError(std::string message);

// A field that is not as it must be: 400.
Error FieldError(std::string field, std::string message, std::string hint = {});

// The exception being handled, whatever it is.
ApiError CurrentApiError();

// What a client sent, as a message quotes it: in one line, at most 60 bytes of it.
std::string Shown(std::string_view text);

// {"error": {"message", "type", "param", "code"}}
Json ToJson(const ApiError& error);
HttpResponse ToResponse(const ApiError& error);

}  // namespace quire
