// POST /v1/chat/completions and POST /v1/completions, as OpenAI and vLLM have them (docs/api.md says how they differ).
#pragma once

#include <memory>

#include "base/json.h"
#include "server/page_request.h"
#include "server/page_work.h"

namespace quire {

// Throws Error{kUsage}, ApiError.
PageRequest ReadChatRequest(const Json& body, const ServedModel& model, bool allow_remote);
PageRequest ReadCompletionRequest(const Json& body, const ServedModel& model, bool allow_remote);

// request, model and reply must outlive the answer.
std::unique_ptr<PageAnswer> MakeChatAnswer(const PageRequest& request, const ServedModel& model, HttpReply& reply);
std::unique_ptr<PageAnswer> MakeCompletionAnswer(const PageRequest& request, const ServedModel& model,
                                                 HttpReply& reply);

}  // namespace quire
