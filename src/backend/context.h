// What every op is given besides its tensors: the stream it runs on and the arena for its temporaries.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "tensor/tensor.h"

namespace quire {

class Backend;

// An ordered queue of device work. On the CPU backends an op has run when its call returns.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void Synchronize() {}  // returns when all work queued so far is done; throws Error{kDeviceLost}
};

// Device memory owned by whoever asked for it.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  virtual ~DeviceBuffer() = default;
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* data_;
  size_t bytes_;
};

// A stack of temporaries in device memory. Views taken from it live until the Scope around them ends. It grows when it
// must (in whole blocks, never moving a view) and keeps what it has, so a repeated step allocates nothing.
// Used by one thread at a time.
class Arena {
 public:
  explicit Arena(Backend& backend) : backend_(backend) {}

  View Take(DType dtype, const Shape& shape);
  void Reserve(size_t bytes);  // one block of at least so many bytes, ahead of use
  size_t bytes() const;        // memory held

  // Gives back, at its end, all that was taken since its beginning.
  class Scope {
   public:
    explicit Scope(Arena& arena) : arena_(arena), block_(arena.block_), used_(arena.used_) {}
    ~Scope() {
      arena_.block_ = block_;
      arena_.used_ = used_;
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Arena& arena_;
    size_t block_, used_;
  };

 private:
  Backend& backend_;
  std::vector<std::unique_ptr<DeviceBuffer>> blocks_;
  size_t block_ = 0, used_ = 0;  // next free byte: offset used_ of blocks_[block_]
};

struct Context {
  Stream& stream;
  Arena& arena;
};

}  // namespace quire
