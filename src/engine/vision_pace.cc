#include "engine/vision_pace.h"

#include <algorithm>
#include <numeric>

namespace quire {
namespace {

constexpr double kLeastMs = 1e-6;  // never 0: it is a weight
constexpr double kNewest = 0.3;    // weight of the last measurement

}  // namespace

size_t VisionPace::CountWithin(std::span<const int> sides_px, double budget_ms) const {
  size_t count = 0;
  for (double ms = 0; count < sides_px.size(); ++count) {
    const auto known = ms_of_side_.find(sides_px[count]);
    if (known == ms_of_side_.end() || (ms += known->second) > budget_ms) break;
  }
  return std::max<size_t>(count, 1);
}

std::vector<double> VisionPace::Learn(std::span<const int> sides_px, double ms) {
  ms = std::max(ms, kLeastMs);
  std::vector<double> shares;
  for (const int side : sides_px) shares.push_back(ms_of_side_.try_emplace(side, ms).first->second);
  const double scale = ms / std::accumulate(shares.begin(), shares.end(), 0.0);
  for (size_t i = 0; i < sides_px.size(); ++i) {
    shares[i] *= scale;
    double& known = ms_of_side_[sides_px[i]];
    known += kNewest * (shares[i] - known);
  }
  return shares;
}

}  // namespace quire
