// The reference backend: plain loops in float32, one op family a file. Slow, readable, and the oracle of the others.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace quire {

// dtype of the options is not used: the reference computes in float32.
std::unique_ptr<Backend> CreateReferenceBackend(const BackendOptions& options);

}  // namespace quire
