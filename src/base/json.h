// JSON (RFC 8259): a value, a strict reader, a writer. Of our own because the engine-only build has no library but the
// standard one, and a checkpoint's headers, config and tokenizer are JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace quire {

// One JSON value, an owner of all below it. Objects keep the order of their keys and may hold a key twice (Find gives
// the first): a reader for which that matters checks it.
class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() = default;  // null
  // Values are written where a Json is wanted: NOLINTBEGIN(google-explicit-constructor)
  Json(std::nullptr_t) {}
  Json(bool value) : value_(value) {}
  Json(int value) : value_(static_cast<int64_t>(value)) {}
  Json(int64_t value) : value_(value) {}
  Json(size_t value) : value_(static_cast<int64_t>(value)) {}
  Json(double value) : value_(value) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(Array value) : value_(std::move(value)) {}
  Json(Object value) : value_(std::move(value)) {}
  // NOLINTEND(google-explicit-constructor)

  // Reads one value that fills text. Throws Error{kBadInput} with line and column; name is its `where`. At most
  // max_depth nested arrays and objects; strings must be UTF-8.
  static Json Parse(std::string_view text, std::string_view name, int max_depth = 64);

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<int64_t>(value_); }  // written without point or exponent
  bool is_number() const { return is_int() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  const char* type_name() const;

  // Value as a type; throw Error{kBadInput} "wanted a string, found an array" when it is another.
  bool as_bool() const;
  int64_t as_int() const;    // a double without a fraction counts
  double as_double() const;  // an int counts
  const std::string& as_string() const;
  const Array& as_array() const;
  const Object& as_object() const;

  // Member of an object, nullptr when absent or when this is no object.
  const Json* Find(std::string_view key) const;
  // Member of an object; throws Error{kBadInput} naming the key when absent.
  const Json& At(std::string_view key) const;

  // Building. On null they make an array or an object first.
  void Add(Json value);                         // at the end of an array
  Json& Set(std::string_view key, Json value);  // replaces a key or adds it last

  // Text; indent < 0: one line, no blanks. Ill-formed UTF-8 is repaired, NaN and infinities become null.
  std::string Dump(int indent = -1) const;

  bool operator==(const Json& other) const = default;

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

}  // namespace quire
