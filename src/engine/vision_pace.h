// How long views take, so that vision can be cut into slices of a known length.
#pragma once

#include <map>
#include <span>
#include <vector>

namespace quire {

// Learns the time of a view of each side from the calls it is told of. One thread.
class VisionPace {
 public:
  // How many of these views, from the first on, a call may hold to stay within a budget: at least one. A view of a side
  // that was never measured goes alone.
  size_t CountWithin(std::span<const int> sides_px, double budget_ms) const;

  // Takes a call's time in; returns what each view had of it.
  std::vector<double> Learn(std::span<const int> sides_px, double ms);

 private:
  std::map<int, double> ms_of_side_;
};

}  // namespace quire
