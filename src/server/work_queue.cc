#include "server/work_queue.h"

#include <sys/resource.h>
#include <unistd.h>

namespace quire {

WorkQueue::WorkQueue(int threads, size_t most_waiting, int niceness) : most_waiting_(most_waiting) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([=, this] { Run(niceness); });
}

WorkQueue::~WorkQueue() {
  Close();
}

bool WorkQueue::Push(int priority, Work work) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || waiting_.size() >= most_waiting_) return false;
    waiting_.emplace(std::pair(priority, arrivals_++), std::move(work));
  }
  wake_.notify_one();
  return true;
}

bool WorkQueue::full() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size() >= most_waiting_;
}
size_t WorkQueue::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size();
}
size_t WorkQueue::running() const {
  const std::lock_guard lock(mutex_);
  return running_;
}

void WorkQueue::Close() {
  std::map<std::pair<int, int64_t>, Work> dropped;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    dropped.swap(waiting_);
  }
  wake_.notify_all();
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

void WorkQueue::Run(int niceness) {
  if (niceness != 0) setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), niceness);  // Linux: of this thread
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return closed_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    Work work = std::move(waiting_.begin()->second);
    waiting_.erase(waiting_.begin());
    ++running_;
    lock.unlock();
    work();
    work = nullptr;  // what it holds goes before the lock is taken
    lock.lock();
    --running_;
  }
}

}  // namespace quire
