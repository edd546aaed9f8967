// Which requests an engine can ever run.
#pragma once

#include "engine/engine.h"
#include "engine/request.h"
#include "model/config.h"

namespace quire {

struct RequestLimits {
  int vocab;           // tokens that the model has
  int context_tokens;  // prompt and output together
  int image_tokens;    // of one page
};
RequestLimits LimitsOf(const EngineOptions& options, const ModelConfig& config);

// What the request's usage begins with: the tokens of its prompt and the limit of its output. Throws Error{kUsage} or
// {kTooLarge} for one that can never run, as Engine::Submit says.
Usage CheckRequest(const Request& request, const RequestLimits& limits);

}  // namespace quire
