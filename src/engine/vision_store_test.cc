#include "engine/vision_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace quire {
namespace {

using Entry = VisionStore::Entry;

std::optional<Hash128> Key(uint64_t number) {
  return Hash128{number, ~number};
}
// As the engine does: has it, sees it, gives it back.
void Use(VisionStore& store, uint64_t key, int64_t rows) {
  Entry* entry = store.Acquire(Key(key), rows);
  ASSERT_NE(entry, nullptr);
  entry->views_done = 1;
  store.Release(entry);
}
bool Knows(VisionStore& store, uint64_t key, int64_t rows) {
  Entry* entry = store.Acquire(Key(key), rows);
  const bool known = entry->views_done == 1;
  store.Release(entry);
  return known;
}

TEST(VisionStoreTest, EqualKeysShareAnEntry) {
  VisionStore store(10);
  Entry* first = store.Acquire(Key(1), 4);
  Entry* second = store.Acquire(Key(1), 4);
  EXPECT_EQ(first, second);
  EXPECT_EQ(first->users, 2);
  EXPECT_EQ(store.used_rows(), 4);
  EXPECT_EQ(store.hits(), 1);
  EXPECT_EQ(store.misses(), 1);
  EXPECT_EQ(store.Acquire(Key(2), 4)->first_row, 4);
  store.Release(first);
  EXPECT_EQ(store.used_rows(), 8);
  store.Release(second);
  EXPECT_EQ(store.used_rows(), 4);
  EXPECT_EQ(store.kept_rows(), 4);
}

TEST(VisionStoreTest, WhatHasNoKeyIsNeitherSharedNorKept) {
  VisionStore store(10);
  Entry* first = store.Acquire({}, 4);
  Entry* second = store.Acquire({}, 4);
  EXPECT_NE(first, second);
  EXPECT_NE(first->first_row, second->first_row);
  store.Release(first);
  EXPECT_EQ(store.used_rows(), 4);
  EXPECT_EQ(store.kept_rows(), 0);
}

TEST(VisionStoreTest, KeepsWhatNobodyUsesUntilItsRowsAreNeeded) {
  VisionStore store(10);
  Use(store, 1, 4);
  Use(store, 2, 4);
  EXPECT_TRUE(Knows(store, 1, 4));  // now the one used last
  Use(store, 3, 4);
  EXPECT_TRUE(Knows(store, 1, 4));
  EXPECT_TRUE(Knows(store, 3, 4));
  EXPECT_FALSE(Knows(store, 2, 4));
}

TEST(VisionStoreTest, EvictsUntilARangeFits) {
  VisionStore store(12);
  for (const uint64_t key : {1, 2, 3, 4}) Use(store, key, 3);
  EXPECT_EQ(store.Acquire(Key(5), 6)->first_row, 0);  // of 1 and 2
  EXPECT_EQ(store.kept_rows(), 6);
}

TEST(VisionStoreTest, FirstFit) {
  VisionStore store(12);
  std::vector<Entry*> entries;
  for (const int64_t rows : {3, 2, 3, 2}) entries.push_back(store.Acquire({}, rows));
  store.Release(entries[1]);
  store.Release(entries[3]);
  EXPECT_EQ(store.Acquire({}, 2)->first_row, 3);
  EXPECT_EQ(store.Acquire({}, 3)->first_row, 8);
}

TEST(VisionStoreTest, WhereUsersLeaveNoRoomNothingChanges) {
  VisionStore store(10);
  Use(store, 1, 3);
  Entry* used = store.Acquire(Key(2), 3);
  Use(store, 3, 4);
  EXPECT_EQ(used->first_row, 3);
  EXPECT_EQ(store.Acquire(Key(4), 5), nullptr);  // of 3 and 4 rows beside the used ones
  EXPECT_EQ(store.misses(), 3);
  EXPECT_TRUE(Knows(store, 1, 3));
  EXPECT_TRUE(Knows(store, 3, 4));
  EXPECT_NE(store.Acquire(Key(5), 4), nullptr);
  store.Release(used);
}

TEST(VisionStoreTest, ThatMuchFitsWithNothingInUse) {
  VisionStore store(10);
  for (const uint64_t key : {1, 2, 3, 4, 5}) Use(store, key, 2);
  Entry* entry = store.Acquire(Key(6), 10);
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->first_row, 0);
}

TEST(VisionStoreTest, ARowHasOneOwner) {
  constexpr int64_t kRows = 100;
  VisionStore store(kRows);
  std::mt19937 random(1);
  std::vector<Entry*> held;
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    if (!held.empty() && random() % 2 == 0) {
      std::swap(held[random() % held.size()], held.back());
      store.Release(held.back());
      held.pop_back();
    } else {
      const uint64_t key = random() % 40;
      const auto rows = static_cast<int64_t>(key % 17 + 1);
      if (Entry* entry = store.Acquire(key == 0 ? std::nullopt : Key(key), rows)) {
        EXPECT_EQ(entry->rows, rows);
        held.push_back(entry);
      } else {
        ++refused;
      }
    }
    std::map<int64_t, const Entry*> by_row;
    for (const Entry* entry : held) by_row[entry->first_row] = entry;
    int64_t end = 0, used = 0;
    for (const auto& [first_row, entry] : by_row) {
      ASSERT_GE(first_row, end);
      end = first_row + entry->rows;
      used += entry->rows;
      ASSERT_EQ(entry->users, std::ranges::count(held, entry));
    }
    ASSERT_LE(end, kRows);
    ASSERT_EQ(store.used_rows(), used);
    ASSERT_LE(used + store.kept_rows(), kRows);
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(store.hits(), 500);
}

}  // namespace
}  // namespace quire
