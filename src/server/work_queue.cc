#include "server/work_queue.h"

#include <sys/resource.h>
#include <unistd.h>

namespace quire {

WorkQueue::WorkQueue(int threads, size_t most_waiting, int niceness, int priority_step_ms)
    : most_waiting_(most_waiting), priority_step_ms_(priority_step_ms) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([=, this] { Run(niceness); });
}

WorkQueue::~WorkQueue() {
  Close();
}

void WorkQueue::RemoveUnwanted() {
  std::erase_if(waiting_, [](const auto& item) { return item.second.unwanted && item.second.unwanted(); });
}

bool WorkQueue::Push(int priority, Work work, std::function<bool()> unwanted) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= most_waiting_) RemoveUnwanted();
    if (closed_ || waiting_.size() >= most_waiting_) return false;
    const auto turn = TurnOf(priority, Clock::now(), priority_step_ms_);
    waiting_.emplace(std::pair(turn, arrivals_++), Entry{std::move(work), std::move(unwanted)});
  }
  wake_.notify_one();
  return true;
}

bool WorkQueue::full() {
  const std::lock_guard lock(mutex_);
  if (waiting_.size() >= most_waiting_) RemoveUnwanted();
  return waiting_.size() >= most_waiting_;
}
size_t WorkQueue::waiting() {
  const std::lock_guard lock(mutex_);
  RemoveUnwanted();
  return waiting_.size();
}
size_t WorkQueue::running() const {
  const std::lock_guard lock(mutex_);
  return running_;
}

void WorkQueue::Close() {
  decltype(waiting_) dropped;
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
    Work work = std::move(waiting_.begin()->second.work);
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
