#include "server/pixel_budget.h"

#include "base/error.h"

namespace quire {
namespace {

constexpr std::chrono::milliseconds kAskAgain{50};

}  // namespace

PixelBudget::Share PixelBudget::Take(int64_t pixels, const std::function<bool()>& canceled,
                                     std::optional<std::chrono::steady_clock::time_point> deadline) {
  std::unique_lock lock(mutex_);
  const auto place = waiting_.insert(arrivals_++).first;
  const auto leave = [&] {
    waiting_.erase(place);
    changed_.notify_all();
  };
  while (place != waiting_.begin() || (taken_ > 0 && pixels > pixels_ - taken_)) {
    const bool is_late = deadline && std::chrono::steady_clock::now() >= *deadline;
    if (is_late || canceled()) {
      leave();
      throw is_late ? Error(ErrorKind::kDeadline, "the time limit passed before there was memory for the picture")
                    : Error(ErrorKind::kCanceled, "canceled");
    }
    changed_.wait_for(lock, kAskAgain);
  }
  taken_ += pixels;
  leave();
  return {this, pixels};
}

void PixelBudget::GiveBack(int64_t pixels) {
  const std::lock_guard lock(mutex_);
  taken_ -= pixels;
  changed_.notify_all();
}

}  // namespace quire
