// Is this device's arithmetic right? Every family of ops against the reference backend, on small random tensors.
#pragma once

#include <string>
#include <vector>

#include "backend/backend.h"

namespace quire {

struct OpCheck {
  std::string op;         // "attention of prompt rows"
  double error = 0;       // relative L2 to the reference; infinite where a number is not finite
  double limit = 0;       // for the device's dtype
  std::string complaint;  // what was thrown in place of a result
  bool passed() const { return complaint.empty() && error <= limit; }
};

// Takes a second or two. Throws nothing: what an op throws is its complaint. After Error{kDeviceLost} the device cannot
// be used again and the rest is not tried.
std::vector<OpCheck> CheckOps(Backend& device);

}  // namespace quire
