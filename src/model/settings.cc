#include "model/settings.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace quire {
namespace {

std::string Join(const Section& section, std::string_view key) {
  return section.path + (section.path.ends_with(' ') ? "" : ".") + std::string(key);
}

[[noreturn]] void Fail(const std::string& where, const std::string& what) {
  throw Error(ErrorKind::kBadModel, what, where);
}

// read(), whose complaint about a value's type becomes one about the model's file.
template <typename F>
decltype(auto) OfModel(const std::string& where, const F& read) {
  try {
    return read();
  } catch (const Error& error) {
    Fail(where, error.message());
  }
}

// The number as it is written in decimals: 1e-06, not 9.99999997e-07.
double AsWritten(float value) {
  char text[32];
  const char* end = std::to_chars(text, text + sizeof text, value).ptr;
  double number = 0;
  std::from_chars(text, end, number);
  return number;
}

}  // namespace

std::string_view Name(Origin origin) {
  constexpr std::string_view kNames[] = {"tensor", "config", "published code"};
  return kNames[static_cast<int>(origin)];
}

std::optional<Settings::Candidate> Settings::Axis(const std::string& tensor, int axis, int64_t divisor) const {
  const HostTensor* found = tensors_ ? tensors_(tensor) : nullptr;
  if (!found) return std::nullopt;
  if (found->shape.rank() <= axis)
    Fail(tensor, "wanted a tensor of more than " + std::to_string(axis) + " axes, found " + found->shape.ToString());
  const int64_t size = found->shape[axis];
  if (size % divisor != 0)
    Fail(tensor, "wanted axis " + std::to_string(axis) + " to be a multiple of " + std::to_string(divisor) +
                     ", found " + found->shape.ToString());
  return Candidate{size / divisor, Origin::kTensor, tensor};
}

std::optional<Settings::Candidate> Settings::Count(const std::string& prefix, const std::string& suffix) const {
  int64_t count = 0;
  while (tensors_ && tensors_(prefix + std::to_string(count) + suffix)) ++count;
  if (count == 0) return std::nullopt;
  return Candidate{count, Origin::kTensor, prefix + "*" + suffix};
}

std::optional<Settings::Candidate> Settings::Key(const Section& section, std::string_view key) {
  const Json* found = Find(section, key);
  if (!found) return std::nullopt;
  const std::string where = Join(section, key);
  return Candidate{OfModel(where, [&] { return found->as_int(); }), Origin::kConfig, where};
}

std::optional<Settings::Candidate> Settings::Item(const Section& section, std::string_view key, size_t index) {
  const Json* found = Find(section, key);
  if (!found) return std::nullopt;
  const std::string where = Join(section, key);
  const Json::Array& items = OfModel(where, [&]() -> const Json::Array& { return found->as_array(); });
  if (index >= items.size()) return std::nullopt;
  return Candidate{OfModel(where, [&] { return items[index].as_int(); }), Origin::kConfig, where};
}

void Settings::Read(const std::string& name, int* value, std::initializer_list<std::optional<Candidate>> candidates,
                    Range range) {
  Candidate chosen{*value, Origin::kPublished, ""};
  bool found = false;
  for (const std::optional<Candidate>& candidate : candidates) {
    if (!candidate) continue;
    if (candidate->value < range.least || candidate->value > range.most)
      Fail(candidate->from, "wanted " + name + " from " + std::to_string(range.least) + " to " +
                                std::to_string(range.most) + ", found " + std::to_string(candidate->value));
    if (!found)
      chosen = *candidate;
    else if (candidate->value != chosen.value)
      Note(name + " is " + std::to_string(chosen.value) + " by " + chosen.from + ", " + candidate->from + " says " +
           std::to_string(candidate->value));
    found = true;
  }
  *value = static_cast<int>(chosen.value);
  record_.push_back({name, chosen.value, chosen.origin, chosen.from});
}

void Settings::Read(const std::string& name, float* value, const Section& section, std::string_view key) {
  const Json* found = Find(section, key);
  if (found) {
    const std::string where = Join(section, key);
    *value = static_cast<float>(OfModel(where, [&] { return found->as_double(); }));
    if (!std::isfinite(*value) || *value <= 0) Fail(where, "wanted a finite number above 0, found " + found->Dump());
  }
  record_.push_back({name, found ? *found : Json(AsWritten(*value)), found ? Origin::kConfig : Origin::kPublished,
                     found ? Join(section, key) : ""});
}

void Settings::Read(const std::string& name, bool* value, const Section& section, std::string_view key) {
  const Json* found = Find(section, key);
  if (found) *value = OfModel(Join(section, key), [&] { return found->as_bool(); });
  record_.push_back({name, *value, found ? Origin::kConfig : Origin::kPublished, found ? Join(section, key) : ""});
}

void Settings::Read(const std::string& name, std::vector<int>* value, const Section& section, std::string_view key) {
  const Json* found = Find(section, key);
  if (found) {
    const std::string where = Join(section, key);
    value->clear();
    for (const Json& item : OfModel(where, [&] { return found->as_array(); })) {
      const int64_t number = OfModel(where, [&] { return item.as_int(); });
      if (number < 0 || number > std::numeric_limits<int>::max())
        Fail(where, "wanted numbers of blocks, found " + std::to_string(number));
      value->push_back(static_cast<int>(number));
    }
  }
  record_.push_back({name, Json::Array(value->begin(), value->end()), found ? Origin::kConfig : Origin::kPublished,
                     found ? Join(section, key) : ""});
}

void Settings::Want(const Section& section, std::string_view key, const Json& built) const {
  for (const Json* object : section.objects) {
    const Json* found = object->Find(key);
    if (!found || found->is_null() || *found == built) continue;
    const bool equal_numbers = found->is_number() && built.is_number() && found->as_double() == built.as_double();
    if (equal_numbers) continue;
    throw Error(ErrorKind::kUnsupported,
                "wanted " + (built.is_null() ? "no such setting" : built.Dump()) + ", found " + found->Dump(),
                Join(section, key), "another model than DeepSeek-OCR?");
  }
}

const Json* Settings::Find(const Section& section, std::string_view key) {
  const Json* chosen = nullptr;
  for (const Json* object : section.objects) {
    const Json* found = object->Find(key);
    if (!found || found->is_null()) continue;
    if (chosen && *found != *chosen)
      Note(Join(section, key) + " is " + chosen->Dump() + ", another place in the file says " + found->Dump());
    if (!chosen) chosen = found;
  }
  return chosen;
}

}  // namespace quire
