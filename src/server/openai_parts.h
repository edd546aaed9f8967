// What OpenAI's replies have in common.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "document/page_record.h"
#include "engine/request.h"
#include "server/http.h"
#include "tokenizer/tokenizer.h"

namespace quire {

// "chatcmpl-" and 32 random hexadecimal digits. Any thread.
std::string NewId(std::string_view prefix);
int64_t UnixSeconds();

// "length" or "stop".
std::string_view FinishReason(const PageRecord& record);

// {prompt_tokens, completion_tokens, total_tokens, prompt_tokens_details}
Json CompletionUsage(const PageRecord& record);

// {token, logprob, bytes, top_logprobs}
Json LogprobJson(const TokenEvent& token, const Tokenizer& tokenizer);
Json LogprobsJson(std::span<const TokenEvent> tokens, const Tokenizer& tokenizer);

// The head of a stream of server-sent events, and one event of it.
HttpResponse EventStreamHead();
std::string SseData(const Json& data);
std::string SseEvent(std::string_view event, const Json& data);
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";

}  // namespace quire
