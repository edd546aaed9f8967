// POST /v1/responses, as OpenAI has it (docs/api.md says how it differs).
#pragma once

#include <memory>

#include "base/json.h"
#include "server/page_request.h"
#include "server/page_work.h"

namespace quire {

// Throws Error{kUsage}, ApiError.
PageRequest ReadResponsesRequest(const Json& body, const ServedModel& model, bool allow_remote);

// request, model and reply must outlive the answer.
std::unique_ptr<PageAnswer> MakeResponsesAnswer(const PageRequest& request, const ServedModel& model, HttpReply& reply);

}  // namespace quire
