// Shapes, views and buffers. All tensors are dense and row-major: the last axis is contiguous.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "tensor/dtype.h"

namespace quire {

// Up to five axes, outermost first.
class Shape {
 public:
  static constexpr int kMaxRank = 5;
  Shape() = default;
  Shape(std::initializer_list<int64_t> axes) : Shape(std::span<const int64_t>(axes.begin(), axes.size())) {}
  explicit Shape(std::span<const int64_t> axes) : rank_(static_cast<int>(axes.size())) {
    QUIRE_CHECK_LE(rank_, kMaxRank);
    for (int i = 0; i < rank_; ++i) axes_[i] = axes[i];
  }

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return axes_[axis < 0 ? axis + rank_ : axis]; }  // -1: the last
  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= axes_[i];
    return n;
  }
  std::string ToString() const;  // "[2304, 768]"
  bool operator==(const Shape& other) const = default;

 private:
  int rank_ = 0;
  std::array<int64_t, kMaxRank> axes_{};
};
std::ostream& operator<<(std::ostream& out, const Shape& shape);
std::ostream& operator<<(std::ostream& out, DType type);

// A tensor that somebody else owns. data is an address of the backend's memory (host memory on the CPU backends).
// const-ness of the bytes follows the use: ops take inputs as `const View&` and never write through them.
struct View {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;

  bool empty() const { return data == nullptr; }
  int64_t elements() const { return shape.elements(); }
  size_t bytes() const { return static_cast<size_t>(elements()) * SizeOf(dtype); }
  // Rows of the tensor seen as a matrix [rows, last axis].
  int64_t width() const { return shape[-1]; }
  int64_t rows() const { return width() == 0 ? 0 : elements() / width(); }

  template <typename T>
  T* as() const {
    QUIRE_CHECK_EQ(dtype, kDTypeOf<T>);
    return static_cast<T*>(data);
  }
  // The same bytes under another shape with as many elements.
  View Reshaped(const Shape& other) const {
    QUIRE_CHECK_EQ(other.elements(), elements());
    return {data, dtype, other};
  }
  // Entries [first, first + count) of the outermost axis.
  View Slice(int64_t first, int64_t count) const;
};

// Read-only bytes of one tensor of a checkpoint, as they lie in the mapped file.
struct HostTensor {
  std::string name;
  const void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;

  int64_t elements() const { return shape.elements(); }
  size_t bytes() const { return static_cast<size_t>(elements()) * SizeOf(dtype); }
  std::vector<float> ToFloats() const;
};

// Owner of host memory aligned to 64 bytes; not initialised.
class HostBuffer {
 public:
  HostBuffer() = default;
  explicit HostBuffer(size_t bytes);  // throws Error{kOutOfMemory}
  void* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(void* p) const;
  };
  std::unique_ptr<void, Free> data_;
  size_t size_ = 0;
};

// A host tensor with its own memory.
struct HostArray {
  HostArray() = default;
  HostArray(DType dtype, const Shape& shape)
      : buffer(static_cast<size_t>(shape.elements()) * SizeOf(dtype)), view{buffer.data(), dtype, shape} {}
  HostBuffer buffer;
  View view;
};

}  // namespace quire
