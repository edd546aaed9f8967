// The caller's end of a request.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "engine/request.h"

namespace quire {

// Shared by the caller and the engine. The caller reads events on any one thread; the engine adds them. Events are
// never dropped: at most one a token, and a request has an end.
class Ticket {
 public:
  Ticket() = default;
  // on_cancel: called by the first Cancel, on its thread; callable as long as the ticket lives.
  explicit Ticket(std::function<void()> on_cancel) : on_cancel_(std::move(on_cancel)) {}

  // The next event; waits for it. After EndEvent there is none: not to be called again.
  Event Next();
  // The same, but gives up after `wait`.
  std::optional<Event> NextWithin(std::chrono::milliseconds wait);
  // Asks the engine to stop; the last event then says kCanceled, unless the request has ended already. Any thread.
  void Cancel();
  // Instead of Next: from now on events go to sink, in order, on the thread that puts them; those that are there go at
  // once. The sink must be quick and leave ticket and engine alone.
  void Forward(std::function<void(Event)> sink);

  bool canceled() const { return canceled_; }
  void Put(Event event);  // of the engine

 private:
  std::mutex mutex_;
  std::condition_variable there_;
  std::deque<Event> events_;
  std::function<void(Event)> sink_;
  const std::function<void()> on_cancel_;
  std::atomic<bool> canceled_{false};
};

}  // namespace quire
