#include "server/fields.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "server/api_error.h"
#include "server/http.h"
#include "server/multipart.h"

namespace quire {
namespace {

constexpr size_t kMostShown = 60;

std::string Written(double value) {
  std::ostringstream text;
  text.precision(15);
  text << value;
  return text.str();
}

}  // namespace

std::string Describe(const Json& value) {
  const std::string type = value.type_name(), text = value.Dump();
  if (value.is_object() || value.is_array() || value.is_null() || text.size() > kMostShown) return type;
  return value.is_bool() ? text : "the" + type.substr(type.find(' ')) + " " + text;
}

Json ParseBody(const HttpRequest& request, std::string_view other_type) {
  const std::string type = MediaType(request.Header("Content-Type"));
  if (type != "application/json")
    throw ApiError(415, "unsupported_media_type",
                   "wanted Content-Type: application/json" +
                       (other_type.empty() ? "" : " or " + std::string(other_type)) + ", found " +
                       (type.empty() ? "none" : "\"" + Shown(type) + "\""));
  try {
    Json body = Json::Parse(request.body, "");
    if (!body.is_object()) throw FieldError("", "wanted an object, found " + Describe(body));
    return body;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kUsage) throw;
    throw ApiError(400, "invalid_json", "the body is no JSON: " + error.message());
  }
}

Fields::Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
  if (!object.is_object()) throw FieldError(path_, "wanted an object, found " + Describe(object));
  std::set<std::string_view> names;
  for (const auto& [name, value] : object.as_object())
    if (!names.insert(name).second) throw FieldError(PathOf(name), "wanted the field once, found it twice");
}

std::string Fields::PathOf(std::string_view name) const {
  const std::string shown = Shown(name);
  return path_.empty() ? shown : path_ + "." + shown;
}

const Json* Fields::Take(std::string_view name) {
  taken_.emplace(name);
  const Json* value = object_.Find(name);
  return value && !value->is_null() ? value : nullptr;
}

const Json& Fields::Require(std::string_view name, std::string_view wanted) {
  const Json* value = Take(name);
  if (!value) throw FieldError(PathOf(name), "wanted " + std::string(wanted) + ", found nothing");
  return *value;
}

std::optional<std::string> Fields::String(std::string_view name) {
  const Json* value = Take(name);
  if (!value) return std::nullopt;
  if (!value->is_string()) throw FieldError(PathOf(name), "wanted a string, found " + Describe(*value));
  return value->as_string();
}

std::optional<bool> Fields::Bool(std::string_view name) {
  const Json* value = Take(name);
  if (!value) return std::nullopt;
  if (!value->is_bool()) throw FieldError(PathOf(name), "wanted true or false, found " + Describe(*value));
  return value->as_bool();
}

std::optional<int64_t> Fields::Int(std::string_view name, int64_t least, int64_t most) {
  const Json* value = Take(name);
  if (!value) return std::nullopt;
  constexpr double kExact = 1LL << 53;  // doubles beyond are not exact
  const bool whole = value->is_int() || (value->is_number() && std::abs(value->as_double()) <= kExact &&
                                         std::floor(value->as_double()) == value->as_double());
  if (!whole || value->as_int() < least || value->as_int() > most)
    throw FieldError(PathOf(name), "wanted a whole number from " + std::to_string(least) + " to " +
                                       std::to_string(most) + ", found " + Describe(*value));
  return value->as_int();
}

std::optional<double> Fields::Number(std::string_view name, double least, double most) {
  const Json* value = Take(name);
  if (!value) return std::nullopt;
  if (!value->is_number() || value->as_double() < least || value->as_double() > most)
    throw FieldError(PathOf(name),
                     "wanted a number from " + Written(least) + " to " + Written(most) + ", found " + Describe(*value));
  return value->as_double();
}

std::optional<std::string> Fields::OneOf(std::string_view name, std::initializer_list<std::string_view> choices) {
  const Json* value = Take(name);
  if (!value) return std::nullopt;
  if (value->is_string() && std::ranges::count(choices, value->as_string())) return value->as_string();
  std::string list;
  for (const std::string_view choice : choices) list += (list.empty() ? "\"" : ", \"") + std::string(choice) + "\"";
  throw FieldError(PathOf(name), "wanted one of " + list + ", found " + Describe(*value));
}

void Fields::Accept(std::span<const Accepted> fields) {
  for (const auto& [name, type] : fields) {
    const Json* value = Take(name);
    if (value && value->type_name() != type)
      throw FieldError(PathOf(name), "wanted " + std::string(type) + ", found " + Describe(*value));
  }
}

void Fields::AcceptNeutral(std::span<const Neutral> fields) {
  for (const Neutral& field : fields) {
    const Json* value = Take(field.name);
    if (!value) continue;
    const Json neutral = Json::Parse(field.value, field.name);
    const bool equal =
        neutral.is_number() && value->is_number() ? neutral.as_double() == value->as_double() : neutral == *value;
    if (!equal)
      throw FieldError(PathOf(field.name), "wanted " + std::string(field.value) +
                                               ", the only value that is possible here, found " + Describe(*value));
  }
}

void Fields::Refuse(std::span<const Refusal> fields) {
  for (const Refusal& field : fields)
    if (Take(field.name)) throw FieldError(PathOf(field.name), "cannot be obeyed: " + std::string(field.reason));
}

void Fields::Finish() const {
  for (const auto& [name, value] : object_.as_object())
    if (!taken_.contains(name))
      throw FieldError(PathOf(name), "there is no field \"" + Shown(name) + "\"", "docs/api.md lists those there are");
}

}  // namespace quire
