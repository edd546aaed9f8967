// Which backends this build has.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace quire {

// Names of those that this machine can run, best first: "cuda", "cpu", "reference".
std::vector<std::string> BackendNames();

// name: one of BackendNames(), "cuda:N", or "auto" for the first of the host's own: a GPU is used when it is named.
// Throws Error{kUsage} for an unknown name, with those there are; Error{kUnsupported} when the machine cannot run it,
// saying why.
std::unique_ptr<Backend> CreateBackend(const std::string& name, const BackendOptions& options);

}  // namespace quire
