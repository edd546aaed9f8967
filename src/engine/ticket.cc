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

void Ticket::Put(Event event) {
  {
    std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  there_.notify_one();
}

}  // namespace quire
