// POST /tokenize and POST /detokenize, as vLLM has them.
#pragma once

#include "base/json.h"
#include "server/served_model.h"

namespace quire {

// The reply's body. Throw Error{kUsage}, ApiError.
Json Tokenize(const Json& body, const ServedModel& model);
Json Detokenize(const Json& body, const ServedModel& model);

}  // namespace quire
