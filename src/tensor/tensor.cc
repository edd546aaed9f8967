#include "tensor/tensor.h"

#include <cstdlib>

#include "base/error.h"

namespace quire {

std::string Shape::ToString() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) text += (i ? ", " : "") + std::to_string(axes_[i]);
  return text + "]";
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << shape.ToString();
}
std::ostream& operator<<(std::ostream& out, DType type) {
  return out << Name(type);
}

View View::Slice(int64_t first, int64_t count) const {
  QUIRE_CHECK_GE(first, 0);
  QUIRE_CHECK_LE(first + count, shape[0]);
  std::array<int64_t, Shape::kMaxRank> axes{};
  for (int i = 0; i < shape.rank(); ++i) axes[i] = shape[i];
  const int64_t inner = shape[0] == 0 ? 0 : elements() / shape[0];
  axes[0] = count;
  return {static_cast<char*>(data) + first * inner * static_cast<int64_t>(SizeOf(dtype)), dtype,
          Shape(std::span<const int64_t>(axes.data(), shape.rank()))};
}

std::vector<float> HostTensor::ToFloats() const {
  std::vector<float> out(static_cast<size_t>(elements()));
  ConvertToFloat(data, dtype, out.data(), out.size());
  return out;
}

HostBuffer::HostBuffer(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  data_.reset(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
  if (!data_) throw Error(ErrorKind::kOutOfMemory, "could not get " + std::to_string(bytes) + " bytes of memory");
}

void HostBuffer::Free::operator()(void* p) const {
  std::free(p);
}

}  // namespace quire
