// Reading a JSON object field by field, so that none is passed over: what nobody took is refused at the end.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"

namespace quire {

// All functions throw Error{kUsage} with the path of the field: what was wanted, what was found. null counts as absent.
class Fields {
 public:
  // path: of the object itself, empty for the whole body. The object must outlive this.
  Fields(const Json& object, std::string path);

  const std::string& path() const { return path_; }
  std::string PathOf(std::string_view name) const;

  // The value as it is; nullptr when absent.
  const Json* Take(std::string_view name);
  const Json& Require(std::string_view name, std::string_view wanted);
  std::optional<std::string> String(std::string_view name);
  std::optional<bool> Bool(std::string_view name);
  std::optional<int64_t> Int(std::string_view name, int64_t least, int64_t most);
  std::optional<double> Number(std::string_view name, double least, double most);
  std::optional<std::string> OneOf(std::string_view name, std::initializer_list<std::string_view> choices);

  // A field that clients send and that changes nothing here.
  struct Accepted {
    std::string_view name;
    std::string_view type;  // as Json::type_name has it
  };
  void Accept(std::span<const Accepted> fields);
  // A field that is good only with this value.
  struct Neutral {
    std::string_view name;
    std::string_view value;  // JSON
  };
  void AcceptNeutral(std::span<const Neutral> fields);
  // A field that cannot be obeyed.
  struct Refusal {
    std::string_view name, reason;
  };
  void Refuse(std::span<const Refusal> fields);
  // Refuses what is left.
  void Finish() const;

 private:
  const Json& object_;
  std::string path_;
  std::set<std::string, std::less<>> taken_;
};

// A request's body as JSON. other_type: what the endpoint takes too, for the message. Throws ApiError: 415 for another
// Content-Type, 400 for what is no JSON object.
struct HttpRequest;
Json ParseBody(const HttpRequest& request, std::string_view other_type = {});

// "a number", "\"abc\"": what was found, short enough for a message.
std::string Describe(const Json& value);

}  // namespace quire
