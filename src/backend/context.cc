#include "backend/context.h"

#include <algorithm>

#include "backend/backend.h"

namespace quire {
namespace {
constexpr size_t kAlignment = 256;
constexpr size_t kBlockBytes = size_t{16} << 20;
}  // namespace

View Arena::Take(DType dtype, const Shape& shape) {
  const size_t bytes =
      (static_cast<size_t>(shape.elements()) * SizeOf(dtype) + kAlignment - 1) / kAlignment * kAlignment;
  while (block_ < blocks_.size() && blocks_[block_]->bytes() - used_ < bytes) ++block_, used_ = 0;
  if (block_ == blocks_.size()) blocks_.push_back(backend_.Allocate(std::max(bytes, kBlockBytes)));
  View view{static_cast<char*>(blocks_[block_]->data()) + used_, dtype, shape};
  used_ += bytes;
  return view;
}

void Arena::Reserve(size_t bytes) {
  for (size_t i = block_; i < blocks_.size(); ++i)
    if (blocks_[i]->bytes() >= bytes) return;
  blocks_.push_back(backend_.Allocate(bytes));
}

size_t Arena::bytes() const {
  size_t sum = 0;
  for (const auto& block : blocks_) sum += block->bytes();
  return sum;
}

}  // namespace quire
