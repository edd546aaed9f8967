// Who owns which rows of the embedding buffer: image tokens of pages, shared and kept by content.
#pragma once

#include <cstdint>
#include <list>
#include <optional>

#include "base/content_hash.h"

namespace quire {

// The buffer's rows [0, rows), given to pages in contiguous ranges. One thread.
class VisionStore {
 public:
  // A page's image tokens: rows [first_row, first_row + rows) of the buffer.
  struct Entry {
    std::optional<Hash128> key;
    int64_t first_row, rows;
    int users = 0;          // sequences that have it; 0: kept until its rows are needed
    int views_done = 0;     // of the page's views, in order: their rows are filled
    uint64_t released = 0;  // when the last user left; later ones are greater
  };

  explicit VisionStore(int64_t rows) : rows_(rows) {}

  // The entry of this key, or a new one in place of the kept ones that were used longest ago. Its owner gives it back
  // with Release. nullptr, and nothing changed, when users hold too much. With no user, anything up to rows() fits.
  Entry* Acquire(const std::optional<Hash128>& key, int64_t rows);
  void Release(Entry* entry);

  int64_t rows() const { return rows_; }
  int64_t used_rows() const { return SumRows(true); }   // of entries with users
  int64_t kept_rows() const { return SumRows(false); }  // of entries without
  int64_t hits() const { return hits_; }                // of Acquire: found, made
  int64_t misses() const { return misses_; }

 private:
  using Entries = std::list<Entry>;

  // Where a range of free rows begins that is long enough, the lowest: the entry behind it and its first row.
  struct Gap {
    Entries::iterator behind;
    int64_t first_row;
  };
  template <typename Counts>
  std::optional<Gap> FindGap(int64_t rows, Counts counts);
  int64_t SumRows(bool with_users) const;

  int64_t rows_;
  Entries entries_;  // in the order of their rows
  uint64_t releases_ = 0;
  int64_t hits_ = 0, misses_ = 0;
};

}  // namespace quire
