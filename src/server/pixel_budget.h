// How many decoded pixels the server holds at once.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

namespace quire {

// Any thread. Whoever decodes a picture takes its pixels first and gives them back when they are in memory no more.
class PixelBudget {
 public:
  explicit PixelBudget(int64_t pixels) : pixels_(pixels) {}

  // Pixels that were taken; given back when this ends. The budget outlives it.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), pixels_(std::exchange(other.pixels_, 0)) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(pixels_, other.pixels_);
      return *this;
    }
    ~Share() {
      if (budget_) budget_->GiveBack(pixels_);
    }

   private:
    friend PixelBudget;
    Share(PixelBudget* budget, int64_t pixels) : budget_(budget), pixels_(pixels) {}
    PixelBudget* budget_ = nullptr;
    int64_t pixels_ = 0;
  };

  // Waits until there is room, in order of arrival, so that large pictures get their turn. More than the whole budget:
  // until nothing else is taken. canceled is asked now and then. Throws Error{kCanceled}, Error{kDeadline}.
  Share Take(int64_t pixels, const std::function<bool()>& canceled,
             std::optional<std::chrono::steady_clock::time_point> deadline);

 private:
  void GiveBack(int64_t pixels);

  const int64_t pixels_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t taken_ = 0;
  int64_t arrivals_ = 0;
  std::set<int64_t> waiting_;  // by arrival
};

}  // namespace quire
