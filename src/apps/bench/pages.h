#pragma once

#include "backend/step.h"

namespace quire {

// Pages of the KV cache that so many tokens take.
inline int PagesOf(int tokens) {
  return (tokens + kPageTokens - 1) / kPageTokens;
}

}  // namespace quire
