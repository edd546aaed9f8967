#include "engine/ticket.h"

#include <utility>

namespace quire {

Event Ticket::Next() {
  std::unique_lock lock(mutex_);
  there_.wait(lock, [&] { return !events_.empty(); });
  Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

std::optional<Event> Ticket::NextWithin(std::chrono::milliseconds wait) {
  std::unique_lock lock(mutex_);
  if (!there_.wait_for(lock, wait, [&] { return !events_.empty(); })) return std::nullopt;
  Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

void Ticket::Cancel() {
  if (!canceled_.exchange(true) && on_cancel_) on_cancel_();
}

void Ticket::Forward(std::function<void(Event)> sink) {
  std::lock_guard lock(mutex_);
  for (Event& event : events_) sink(std::move(event));
  events_.clear();
  sink_ = std::move(sink);
}

void Ticket::Put(Event event) {
  {
    std::lock_guard lock(mutex_);
    if (sink_) return sink_(std::move(event));
    events_.push_back(std::move(event));
  }
  there_.notify_one();
}

}  // namespace quire
