#include "engine/kv_pages.h"

namespace quire {

KvPages::KvPages(int count) : total_(count) {
  for (int page = count - 1; page >= 0; --page) free_.push_back(page);
}

bool KvPages::Grow(std::vector<int32_t>* pages, int count) {
  const int missing = count - static_cast<int>(pages->size());
  if (missing > available()) return false;
  for (int i = 0; i < missing; ++i) {
    pages->push_back(free_.back());
    free_.pop_back();
  }
  return true;
}

void KvPages::Release(std::vector<int32_t>* pages) {
  free_.insert(free_.end(), pages->rbegin(), pages->rend());
  pages->clear();
}

}  // namespace quire
