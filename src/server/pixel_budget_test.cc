#include "server/pixel_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "base/error.h"

namespace quire {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

PixelBudget::Share Take(PixelBudget& budget, int64_t pixels) {
  return budget.Take(
      pixels, [] { return false; }, std::nullopt);
}
std::future<PixelBudget::Share> TakeLater(PixelBudget& budget, int64_t pixels) {
  auto share = std::async(std::launch::async, [&budget, pixels] { return Take(budget, pixels); });
  std::this_thread::sleep_for(milliseconds(30));  // it has arrived
  return share;
}
bool Waits(const std::future<PixelBudget::Share>& share) {
  return share.wait_for(milliseconds(30)) == std::future_status::timeout;
}
ErrorKind KindOf(const std::function<void()>& take) {
  try {
    take();
  } catch (const Error& error) {
    return error.kind();
  }
  return ErrorKind::kInternal;
}

TEST(PixelBudget, WhatDoesNotFitWaits) {
  PixelBudget budget(10);
  PixelBudget::Share first = Take(budget, 6);
  const PixelBudget::Share second = Take(budget, 4);
  auto third = TakeLater(budget, 1);
  EXPECT_TRUE(Waits(third));
  first = {};
  third.get();
}

TEST(PixelBudget, ALargeOneIsNotOvertaken) {
  PixelBudget budget(10);
  PixelBudget::Share first = Take(budget, 5);
  auto large = TakeLater(budget, 9), small = TakeLater(budget, 1);
  EXPECT_TRUE(Waits(large));
  EXPECT_TRUE(Waits(small));
  first = {};
  const PixelBudget::Share second = large.get(), third = small.get();
}

TEST(PixelBudget, OneLargerThanAllGoesAlone) {
  PixelBudget budget(10);
  PixelBudget::Share first = Take(budget, 1);
  auto huge = TakeLater(budget, 1000);
  EXPECT_TRUE(Waits(huge));
  first = {};
  PixelBudget::Share alone = huge.get();
  auto next = TakeLater(budget, 1);
  EXPECT_TRUE(Waits(next));
  alone = {};
  next.get();
}

TEST(PixelBudget, WaitingEnds) {
  PixelBudget budget(10);
  const PixelBudget::Share all = Take(budget, 10);
  const auto never = [] { return false; };
  EXPECT_EQ(KindOf([&] { budget.Take(1, never, Clock::now() + milliseconds(20)); }), ErrorKind::kDeadline);
  std::atomic<bool> gone = false;
  auto waiting = std::async(std::launch::async, [&] {
    return KindOf([&] {
      budget.Take(
          1, [&] { return gone.load(); }, std::nullopt);
    });
  });
  EXPECT_EQ(waiting.wait_for(milliseconds(30)), std::future_status::timeout);
  gone = true;
  EXPECT_EQ(waiting.get(), ErrorKind::kCanceled);
}

TEST(PixelBudget, NeverMoreThanThereIs) {
  PixelBudget budget(10);
  std::atomic<int64_t> taken = 0, most = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      for (int n = 0; n < 200; ++n) {
        const int64_t pixels = 1 + (i + n) % 7;
        const PixelBudget::Share share = Take(budget, pixels);
        const int64_t now = taken += pixels;
        for (int64_t seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
        }
        std::this_thread::sleep_for(std::chrono::microseconds(50));
        taken -= pixels;
      }
    });
  threads.clear();
  EXPECT_LE(most, 10);
  EXPECT_GT(most, 7);
}

}  // namespace
}  // namespace quire
