#include "base/thread_pool.h"

#include <chrono>
#include <utility>

namespace quire {
namespace {

thread_local bool inside_loop = false;
// Long enough to bridge the gap between two products of a step, short enough not to hold a core beside other work.
constexpr auto kSpin = std::chrono::microseconds(30);

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

struct ThreadPool::Loop {
  int64_t count;
  const std::function<void(int64_t)>* body;
  std::atomic<int64_t> next{0};
  std::mutex error_mutex;
  std::exception_ptr error;
};

ThreadPool::ThreadPool(int threads, std::function<void(int)> on_start) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i, on_start] { Work(i, on_start); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    ++round_;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Take(Loop* loop) {
  inside_loop = true;
  for (int64_t i; (i = loop->next.fetch_add(1)) < loop->count;) {
    try {
      (*loop->body)(i);
    } catch (...) {
      std::lock_guard lock(loop->error_mutex);
      if (!loop->error) loop->error = std::current_exception();
    }
  }
  inside_loop = false;
}

void ThreadPool::For(int64_t count, const std::function<void(int64_t)>& body) {
  if (inside_loop || workers_.empty() || count <= 1) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  Loop loop;
  loop.count = count;
  loop.body = &body;
  {
    std::lock_guard lock(mutex_);
    loop_ = &loop;
    ++round_;
  }
  wake_.notify_all();
  Take(&loop);
  loop_ = nullptr;                      // no worker enters from here on;
  while (inside_.load() != 0) Pause();  // those inside end their last iteration
  if (loop.error) std::rethrow_exception(loop.error);
}

void ThreadPool::Work(int index, const std::function<void(int)>& on_start) {
  if (on_start) on_start(index);
  uint64_t seen = 0;
  while (!stop_) {
    const auto until = std::chrono::steady_clock::now() + kSpin;
    while (round_ == seen && std::chrono::steady_clock::now() < until) Pause();
    if (round_ == seen) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return round_ != seen; });
    }
    seen = round_;
    ++inside_;  // before the look at loop_, so that For sees this worker or this worker sees no loop
    if (Loop* loop = loop_) Take(loop);
    --inside_;
  }
}

}  // namespace quire
