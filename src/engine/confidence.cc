#include "engine/confidence.h"

#include <cmath>

#include "engine/guard_table.h"

namespace quire {

bool Confidence::doubtful() const {
  return tokens >= kGuardTable.doubtful_min_tokens && improbable_share() > kGuardTable.doubtful_share;
}

void ConfidenceMeter::Push(float logprob) {
  ++confidence_.tokens;
  confidence_.improbable += std::exp(logprob) < kGuardTable.improbable_below;
  confidence_.sum_logprob += logprob;
}

}  // namespace quire
