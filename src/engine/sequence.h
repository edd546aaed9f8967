// One request on its way through the engine. Touched by the engine's thread alone.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "backend/step.h"
#include "engine/confidence.h"
#include "engine/repeat_guard.h"
#include "engine/request.h"
#include "engine/ticket.h"
#include "tokenizer/stream_decoder.h"

namespace quire {

struct Sequence {
  using Clock = std::chrono::steady_clock;

  Request request;
  std::shared_ptr<Ticket> ticket;
  StreamDecoder text;
  BlockRepeatDetector blocks;
  RepeatedBoxDetector boxes;
  ConfidenceMeter confidence;
  Usage usage;
  Clock::time_point submitted;

  int slot = -1;                // of samplers, page table and embedding buffer, from admission to the end
  int64_t first_embedding = 0;  // row of the first image token in the embedding buffer
  int views_done = 0;
  std::vector<int32_t> generated;
  std::vector<int32_t> pages;  // of the KV cache
  bool ended = false;
  int computed = 0;  // positions [0, computed) are in the cache

  int image_tokens() const { return request.page ? static_cast<int>(request.page->plan.tokens.size()) : 0; }
  int views() const { return request.page ? static_cast<int>(request.page->views.size()) : 0; }
  int prompt_tokens() const { return static_cast<int>(request.before.size() + request.after.size()) + image_tokens(); }
  int length() const { return prompt_tokens() + static_cast<int>(generated.size()); }
  bool seen() const { return views_done == views(); }  // its image tokens are in the embedding buffer

  RowClass ClassAt(int position) const { return position < prompt_tokens() ? RowClass::kPrompt : RowClass::kGenerated; }
  // The token id at a position, or the row of the embedding buffer for an image token.
  std::pair<TokenSource, int32_t> InputAt(int position) const;
  // The prompt as ids, -1 for image tokens: what a guard over the prompt looks at.
  std::vector<int32_t> PromptIds() const;
};

}  // namespace quire
