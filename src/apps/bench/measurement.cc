#include "apps/bench/measurement.h"

#include <algorithm>
#include <chrono>

namespace quire {

double Measurement::median_s() const {
  std::vector<double> sorted = seconds;
  std::ranges::sort(sorted);
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

double FloorSeconds(const Work& work, const Ceilings& ceilings) {
  return std::max(work.flops / ceilings.product_flops,
                  (work.weight_bytes + work.cache_bytes) / ceilings.read_bytes_per_s);
}

std::vector<double> TimeRounds(int rounds, const std::function<void()>& prepare, const std::function<void()>& body) {
  std::vector<double> seconds;
  for (int i = -1; i < rounds; ++i) {
    prepare();
    const auto start = std::chrono::steady_clock::now();
    body();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    if (i >= 0) seconds.push_back(time.count());
  }
  return seconds;
}

}  // namespace quire
