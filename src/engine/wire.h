// Values as bytes and back, between two processes of one build on one machine: numbers as they lie in memory, lengths
// before what has one. `Pass` is both directions, so that each type's members are listed once; a binding of members
// that forgets one does not compile.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"

namespace quire {

class WireWriter {
 public:
  static constexpr bool kReads = false;
  explicit WireWriter(std::string* out) : out_(*out) {}

  void Raw(const void* data, size_t bytes) { out_.append(static_cast<const char*>(data), bytes); }
  size_t Count(size_t count, size_t /*element_bytes*/) {
    Raw(&count, sizeof count);
    return count;
  }

 private:
  std::string& out_;
};

// Throws Error{kInternal} where the bytes end too early or say what cannot be.
class WireReader {
 public:
  static constexpr bool kReads = true;
  explicit WireReader(std::span<const char> bytes) : left_(bytes) {}

  void Raw(void* data, size_t bytes) {
    if (bytes > left_.size()) Refuse();
    if (bytes > 0) std::memcpy(data, left_.data(), bytes);
    left_ = left_.subspan(bytes);
  }
  // A length that the bytes can hold.
  size_t Count(size_t /*none yet*/, size_t element_bytes) {
    size_t count = 0;
    Raw(&count, sizeof count);
    if (count > left_.size() / element_bytes) Refuse();
    return count;
  }
  bool done() const { return left_.empty(); }
  [[noreturn]] static void Refuse() { throw Error(ErrorKind::kInternal, "a message that cannot be understood"); }

 private:
  std::span<const char> left_;
};

template <typename T>
T Blank() {
  if constexpr (std::is_same_v<T, Error>) {
    return {ErrorKind::kInternal, ""};
  } else {
    return T{};
  }
}

// An enumerator; last: the greatest there is.
template <typename Wire, typename Enum>
void PassEnum(Wire& wire, Enum& value, Enum last) {
  wire.Raw(&value, sizeof value);
  if (Wire::kReads && static_cast<uint64_t>(value) > static_cast<uint64_t>(last)) WireReader::Refuse();
}

template <typename Wire, typename T>
requires std::is_trivially_copyable_v<T> &&(!std::is_enum_v<T>)void Pass(Wire& wire, T& value) {
  wire.Raw(&value, sizeof value);
}

template <typename Wire>
void Pass(Wire& wire, bool& value) {
  auto byte = static_cast<uint8_t>(value);
  wire.Raw(&byte, 1);
  if constexpr (Wire::kReads) value = byte != 0;
}

template <typename Wire>
void Pass(Wire& wire, std::string& text) {
  const size_t size = wire.Count(text.size(), 1);
  if constexpr (Wire::kReads) text.resize(size);
  wire.Raw(text.data(), text.size());
}

template <typename Wire, typename A, typename B>
void Pass(Wire& wire, std::pair<A, B>& pair) {
  Pass(wire, pair.first);
  Pass(wire, pair.second);
}

template <typename Wire, typename T>
void Pass(Wire& wire, std::vector<T>& values) {
  constexpr bool kPlain = std::is_trivially_copyable_v<T>;
  const size_t size = wire.Count(values.size(), kPlain ? sizeof(T) : 1);
  if constexpr (Wire::kReads) values.resize(size);
  if constexpr (kPlain) {
    wire.Raw(values.data(), values.size() * sizeof(T));
  } else {
    for (T& value : values) Pass(wire, value);
  }
}

template <typename Wire, typename T>
void Pass(Wire& wire, std::optional<T>& value) {
  bool there = value.has_value();
  Pass(wire, there);
  if (Wire::kReads && there) value = Blank<T>();
  if (there) Pass(wire, *value);
}

template <typename Wire, typename T>
void Pass(Wire& wire, std::shared_ptr<const T>& value) {
  bool there = value != nullptr;
  Pass(wire, there);
  if (!there) return;
  if constexpr (Wire::kReads) {
    auto read = std::make_shared<T>();
    Pass(wire, *read);
    value = std::move(read);
  } else {
    Pass(wire, const_cast<T&>(*value));  // a writer changes nothing
  }
}

template <typename Wire, typename... Choices>
void Pass(Wire& wire, std::variant<Choices...>& value) {
  auto index = static_cast<uint8_t>(value.index());
  Pass(wire, index);
  if constexpr (Wire::kReads) {
    using Make = std::variant<Choices...> (*)();
    constexpr Make kMakers[] = {[]() -> std::variant<Choices...> { return Blank<Choices>(); }...};
    if (index >= sizeof...(Choices)) WireReader::Refuse();
    value = kMakers[index]();
  }
  std::visit([&](auto& choice) { Pass(wire, choice); }, value);
}

template <typename Wire, typename First, typename Second, typename... More>
void Pass(Wire& wire, First& first, Second& second, More&... more) {
  Pass(wire, first);
  Pass(wire, second);
  (Pass(wire, more), ...);
}

}  // namespace quire
