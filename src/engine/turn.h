// In which order requests get their turn.
#pragma once

#include <algorithm>
#include <chrono>

namespace quire {

// Of waiting, that counts as much as one of priority.
inline constexpr int kPriorityStepMs = 10'000;

// Earlier ones go first: lower priorities, then older ones, but each step_ms that one has waited longer makes up for
// one of priority, so that none waits for ever. All wait equally fast: the order of two never changes.
inline std::chrono::steady_clock::time_point TurnOf(int priority, std::chrono::steady_clock::time_point arrival,
                                                    int step_ms = kPriorityStepMs) {
  constexpr int kMost = 1'000'000;  // keeps the time in range
  return arrival + std::clamp(priority, -kMost, kMost) * std::chrono::milliseconds(step_ms);
}

}  // namespace quire
