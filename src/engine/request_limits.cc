#include "engine/request_limits.h"

#include <algorithm>
#include <span>
#include <string>

#include "base/error.h"
#include "base/utf8.h"

namespace quire {
namespace {

void CheckIds(std::span<const int32_t> ids, int vocab) {
  for (const int32_t id : ids)
    if (id < 0 || id >= vocab)
      throw Error(ErrorKind::kUsage, "the prompt holds the token " + std::to_string(id) + ", the model has 0 to " +
                                         std::to_string(vocab - 1));
}

void CheckStops(const std::vector<std::string>& stops) {
  if (stops.size() > kMaxStops)
    throw Error(ErrorKind::kUsage,
                "wanted at most " + std::to_string(kMaxStops) + " stop strings, found " + std::to_string(stops.size()));
  for (const std::string& stop : stops)
    if (stop.empty() || !IsUtf8(stop))
      throw Error(ErrorKind::kUsage, std::string("wanted a stop string of whole characters, found ") +
                                         (stop.empty() ? "an empty one" : "bytes that are not UTF-8"));
}

}  // namespace

RequestLimits LimitsOf(const EngineOptions& options, const ModelConfig& config) {
  const int longest = config.lm.max_positions;
  return {.vocab = config.lm.vocab,
          .context_tokens = options.context_tokens ? std::min(options.context_tokens, longest) : longest,
          .image_tokens = options.image_tokens};
}

Usage CheckRequest(const Request& request, const RequestLimits& limits) {
  CheckStops(request.stop);
  CheckIds(request.before, limits.vocab);
  CheckIds(request.after, limits.vocab);
  const int prompt = request.prompt_tokens(), room = limits.context_tokens - prompt;
  if (prompt == 0) throw Error(ErrorKind::kUsage, "the prompt is empty");
  if (request.image_tokens() > limits.image_tokens)
    throw Error(ErrorKind::kTooLarge, "wanted a page of at most " + std::to_string(limits.image_tokens) +
                                          " image tokens, found " + std::to_string(request.image_tokens()));
  if (room <= 0)
    throw Error(ErrorKind::kTooLarge, "the prompt has " + std::to_string(prompt) + " tokens, the context holds " +
                                          std::to_string(limits.context_tokens) + " with the output");
  return {.prompt_tokens = prompt,
          .image_tokens = request.image_tokens(),
          .max_tokens = request.max_tokens > 0 ? std::min(request.max_tokens, room) : room};
}

}  // namespace quire
