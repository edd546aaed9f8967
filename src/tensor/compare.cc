#include "tensor/compare.h"

#include <cmath>
#include <cstdio>
#include <limits>

#include "base/check.h"

namespace quire {

Difference Compare(std::span<const float> found, std::span<const float> wanted) {
  QUIRE_CHECK_EQ(found.size(), wanted.size());
  Difference d;
  double diff2 = 0, norm2 = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double diff = std::fabs(static_cast<double>(found[i]) - wanted[i]);
    if (!std::isfinite(diff)) return {std::numeric_limits<double>::infinity(), diff, i};
    if (diff > d.max_abs) d.max_abs = diff, d.worst = i;
    diff2 += diff * diff;
    norm2 += static_cast<double>(wanted[i]) * wanted[i];
  }
  d.relative_l2 = diff2 == 0 ? 0 : std::sqrt(diff2 / norm2);
  return d;
}

std::string Difference::ToString() const {
  char text[96];
  std::snprintf(text, sizeof text, "relative L2 %.2e, largest %.2e at %zu", relative_l2, max_abs, worst);
  return text;
}

}  // namespace quire
