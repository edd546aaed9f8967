// Takes the tensors of a checkpoint by name, type and shape, and sees to it that none is left over.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "weights/checkpoint.h"

namespace quire {

inline constexpr DType kFloatingTypes[] = {DType::kBf16, DType::kF16, DType::kF32};

// A reader of one checkpoint, which must outlive it; one thread. All errors are Error{kBadModel} that name file and
// tensor, what was wanted and what was found.
class WeightStore {
 public:
  explicit WeightStore(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  const Checkpoint& checkpoint() const { return checkpoint_; }

  // The tensor of this name; a checkpoint that lacks it, or has another shape or type, is refused. May be taken again.
  const HostTensor& Take(std::string_view name, const Shape& expected, std::span<const DType> types = kFloatingTypes);
  // The same, nullptr when the checkpoint lacks it.
  const HostTensor* TakeOptional(std::string_view name, const Shape& expected,
                                 std::span<const DType> types = kFloatingTypes);

  bool Has(std::string_view name) const { return checkpoint_.Find(name) != nullptr; }
  // Shape of a tensor that a dimension is read from; nullptr when absent. Does not take it.
  const Shape* ShapeOf(std::string_view name) const;

  // Tensors that the model knows and does not use; '*' stands for any characters.
  void Ignore(std::string_view pattern);
  // Throws when tensors were neither asked for nor ignored.
  void Finish() const;

  // For tensors that were packed into another form: see SafetensorsFile::DropPages.
  void DropPages(const HostTensor& tensor) const { checkpoint_.DropPages(tensor); }

  size_t taken_bytes() const { return taken_bytes_; }

 private:
  const Checkpoint& checkpoint_;
  std::unordered_set<const HostTensor*> taken_;
  std::vector<std::string> ignored_;
  size_t taken_bytes_ = 0;
};

}  // namespace quire
