#include "weights/weight_store.h"

#include <algorithm>

#include "base/error.h"

namespace quire {
namespace {

// Whether name is pattern, in which '*' stands for any characters.
bool Matches(std::string_view name, std::string_view pattern) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return name == pattern;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (size_t at = star; at <= name.size(); ++at)
    if (Matches(name.substr(at), rest)) return true;
  return false;
}

std::string Join(std::span<const DType> types) {
  std::string text;
  for (size_t i = 0; i < types.size(); ++i)
    text += (i == 0 ? "" : i + 1 == types.size() ? " or " : ", ") + std::string(Name(types[i]));
  return text;
}

}  // namespace

const HostTensor& WeightStore::Take(std::string_view name, const Shape& expected, std::span<const DType> types) {
  if (const HostTensor* tensor = TakeOptional(name, expected, types)) return *tensor;
  throw Error(ErrorKind::kBadModel, "wanted this tensor of shape " + expected.ToString() + ", the checkpoint lacks it",
              checkpoint_.path() + ": " + std::string(name));
}

const HostTensor* WeightStore::TakeOptional(std::string_view name, const Shape& expected,
                                            std::span<const DType> types) {
  const HostTensor* tensor = checkpoint_.Find(name);
  if (!tensor) return nullptr;
  if (taken_.insert(tensor).second) taken_bytes_ += tensor->bytes();
  const bool known_type = std::ranges::find(types, tensor->dtype) != types.end();
  if (tensor->shape != expected || !known_type)
    throw Error(ErrorKind::kBadModel,
                "wanted " + expected.ToString() + " of " + Join(types) + ", found " + tensor->shape.ToString() +
                    " of " + std::string(Name(tensor->dtype)),
                checkpoint_.FileOf(name) + ": " + tensor->name);
  return tensor;
}

const Shape* WeightStore::ShapeOf(std::string_view name) const {
  const HostTensor* tensor = checkpoint_.Find(name);
  return tensor ? &tensor->shape : nullptr;
}

void WeightStore::Ignore(std::string_view pattern) {
  ignored_.emplace_back(pattern);
}

void WeightStore::Finish() const {
  constexpr size_t kNamed = 5;
  std::string names;
  size_t left_over = 0;
  for (const SafetensorsFile& file : checkpoint_.files()) {
    for (const HostTensor& tensor : file.tensors()) {
      if (taken_.contains(&tensor)) continue;
      if (std::ranges::any_of(ignored_, [&](const std::string& pattern) { return Matches(tensor.name, pattern); }))
        continue;
      if (++left_over <= kNamed) names += (names.empty() ? "" : ", ") + tensor.name;
    }
  }
  if (left_over == 0) return;
  throw Error(ErrorKind::kBadModel,
              "wanted no tensor but the model's own, found " + std::to_string(left_over) + " unknown: " + names +
                  (left_over > kNamed ? ", ..." : ""),
              checkpoint_.path(), "a checkpoint of another model?");
}

}  // namespace quire
