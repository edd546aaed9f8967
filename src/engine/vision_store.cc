#include "engine/vision_store.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

// Looks at entries of which `counts` is true, as if there were no others.
template <typename Counts>
std::optional<VisionStore::Gap> VisionStore::FindGap(int64_t rows, Counts counts) {
  int64_t first_row = 0;
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (!counts(*it)) continue;
    if (it->first_row - first_row >= rows) return Gap{it, first_row};
    first_row = it->first_row + it->rows;
  }
  if (rows_ - first_row >= rows) return Gap{entries_.end(), first_row};
  return std::nullopt;
}

VisionStore::Entry* VisionStore::Acquire(const std::optional<Hash128>& key, int64_t rows) {
  const auto known = std::ranges::find_if(entries_, [&](const Entry& e) { return key && e.key == key; });
  if (known != entries_.end()) {
    QUIRE_CHECK_EQ(known->rows, rows);
    ++known->users;
    ++hits_;
    return &*known;
  }
  if (!FindGap(rows, [](const Entry& e) { return e.users > 0; })) return nullptr;
  std::optional<Gap> gap;
  while (!(gap = FindGap(rows, [](const Entry&) { return true; }))) {
    auto oldest = entries_.end();
    for (auto it = entries_.begin(); it != entries_.end(); ++it)
      if (it->users == 0 && (oldest == entries_.end() || it->released < oldest->released)) oldest = it;
    entries_.erase(oldest);
  }
  ++misses_;
  return &*entries_.insert(gap->behind, Entry{.key = key, .first_row = gap->first_row, .rows = rows, .users = 1});
}

void VisionStore::Release(Entry* entry) {
  if (--entry->users > 0) return;
  entry->released = ++releases_;
  if (!entry->key) std::erase_if(entries_, [&](const Entry& e) { return &e == entry; });
}

int64_t VisionStore::SumRows(bool with_users) const {
  int64_t sum = 0;
  for (const Entry& e : entries_) sum += (e.users > 0) == with_users ? e.rows : 0;
  return sum;
}

}  // namespace quire
