#include "server/work_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <vector>

namespace quire {
namespace {

using testing::ElementsAre;

TEST(WorkQueue, ByPriorityThenByArrival) {
  std::latch begun(1), go(1), done(6);
  std::vector<int> order;
  WorkQueue queue(1, 10);
  queue.Push(0, [&] {
    begun.count_down();
    go.wait();
    done.count_down();
  });
  begun.wait();
  for (const auto& [priority, number] : {std::pair(5, 1), {0, 2}, {5, 3}, {-1, 4}, {0, 5}})
    queue.Push(priority, [&order, &done, number = number] {
      order.push_back(number);
      done.count_down();
    });
  EXPECT_EQ(queue.waiting(), 5u);
  EXPECT_EQ(queue.running(), 1u);
  go.count_down();
  done.wait();
  EXPECT_THAT(order, ElementsAre(4, 2, 5, 1, 3));
}

TEST(WorkQueue, WaitingMakesUpForPriority) {
  std::latch begun(1), go(1), done(4);
  std::vector<int> order;
  WorkQueue queue(1, 10, 0, 1);  // ms
  queue.Push(0, [&] {
    begun.count_down();
    go.wait();
    done.count_down();
  });
  begun.wait();
  auto push = [&](int priority, int number) {
    queue.Push(priority, [&, number] {
      order.push_back(number);
      done.count_down();
    });
  };
  push(20, 1);
  push(1'000'000, 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  push(0, 3);
  go.count_down();
  done.wait();
  EXPECT_THAT(order, ElementsAre(1, 3, 2));
}

TEST(WorkQueue, RefusesWhenFull) {
  std::latch begun(1), go(1);
  WorkQueue queue(1, 2);
  queue.Push(0, [&] {
    begun.count_down();
    go.wait();
  });
  begun.wait();
  EXPECT_TRUE(queue.Push(0, [] {}));
  EXPECT_FALSE(queue.full());
  EXPECT_TRUE(queue.Push(0, [] {}));
  EXPECT_TRUE(queue.full());
  EXPECT_FALSE(queue.Push(0, [] {}));
  go.count_down();
}

TEST(WorkQueue, CloseDropsWhatWaitsAndWaitsForWhatRuns) {
  std::latch begun(1);
  std::atomic<bool> stop{false}, ended{false}, ran{false};
  WorkQueue queue(1, 10);
  queue.Push(0, [&] {
    begun.count_down();
    while (!stop) std::this_thread::yield();
    ended = true;
  });
  begun.wait();
  queue.Push(0, [&] { ran = true; });
  std::thread stopper([&] { stop = true; });
  queue.Close();
  stopper.join();
  EXPECT_TRUE(ended);
  EXPECT_FALSE(ran && queue.waiting() > 0);
  EXPECT_FALSE(queue.Push(0, [] {}));
}

}  // namespace
}  // namespace quire
