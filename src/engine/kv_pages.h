// Who owns which page of the KV cache.
#pragma once

#include <cstdint>
#include <vector>

namespace quire {

// The free list of a fixed set of pages. One thread.
class KvPages {
 public:
  explicit KvPages(int count);

  int total() const { return total_; }
  int available() const { return static_cast<int>(free_.size()); }

  // Grows `pages` to `count` pages; false, and nothing changed, when there are not enough.
  bool Grow(std::vector<int32_t>* pages, int count);
  // Gives all back.
  void Release(std::vector<int32_t>* pages);

 private:
  int total_;
  std::vector<int32_t> free_;
};

}  // namespace quire
