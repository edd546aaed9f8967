// Work that waits for one of a fixed number of threads.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine/turn.h"

namespace quire {

// Any thread may push. Work must not throw.
class WorkQueue {
 public:
  using Work = std::function<void()>;

  // niceness: added to that of the threads, so that they give way to the device's.
  WorkQueue(int threads, size_t most_waiting, int niceness = 0, int priority_step_ms = kPriorityStepMs);
  ~WorkQueue();  // as Close
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Lower priorities and those that have waited long first (engine/turn.h). False when too much waits, or after Close.
  // unwanted: whether nobody waits for the work any more, which then gives up its place.
  bool Push(int priority, Work work, std::function<bool()> unwanted = {});
  bool full();
  size_t waiting();
  size_t running() const;

  // Drops what waits and waits for what runs.
  void Close();

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    Work work;
    std::function<bool()> unwanted;
  };
  void Run(int niceness);
  void RemoveUnwanted();  // under the lock

  const size_t most_waiting_;
  const int priority_step_ms_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<std::pair<Clock::time_point, int64_t>, Entry> waiting_;  // by turn and arrival
  int64_t arrivals_ = 0;
  size_t running_ = 0;
  bool closed_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace quire
