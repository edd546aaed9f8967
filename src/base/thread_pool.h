// The one pool of compute threads of a CPU backend.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace quire {

// Runs a loop's iterations on all threads. One caller at a time (the thread that drives the device); the caller works
// too, so a pool of 1 starts no thread. Idle workers spin for a few microseconds and then sleep.
class ThreadPool {
 public:
  // threads >= 1 in all; on_start(i) runs once in each worker before its first work (i >= 1).
  explicit ThreadPool(int threads, std::function<void(int)> on_start = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(i) for every i in [0, count) and returns when all are done. Which thread takes which i is open, so a
  // body must write to places of its own i only. The first exception is thrown again here after the rest have ended. A
  // call from inside a body runs its loop on the calling thread.
  void For(int64_t count, const std::function<void(int64_t)>& body);

 private:
  struct Loop;
  void Work(int index, const std::function<void(int)>& on_start);
  void Take(Loop* loop);

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<uint64_t> round_{0};
  std::atomic<Loop*> loop_{nullptr};
  std::atomic<int> inside_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace quire
