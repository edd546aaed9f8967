// One request on its way through the engine. Touched by the engine's thread alone.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "backend/step.h"
#include "engine/confidence.h"
#include "engine/repeat_guard.h"
#include "engine/request.h"
#include "engine/stop_strings.h"
#include "engine/ticket.h"
#include "engine/vision_store.h"
#include "tokenizer/stream_decoder.h"

namespace quire {

struct Sequence {
  using Clock = std::chrono::steady_clock;

  Request request;
  std::shared_ptr<Ticket> ticket;
  StreamDecoder text;
  StopStrings stops;
  BlockRepeatDetector blocks;
  RepeatedBoxDetector boxes;
  ConfidenceMeter confidence;
  Usage usage;
  Clock::time_point submitted, turn;  // turn: TurnOf

  int slot = -1;                         // of samplers and page table, from admission to the end
  VisionStore::Entry* vision = nullptr;  // where its image tokens are; as long as the slot, none without a picture
  std::vector<int32_t> generated;
  std::vector<int32_t> pages;   // of the KV cache
  int computed = 0;             // positions [0, computed) are in the cache
  std::optional<EndEvent> end;  // given out when all that it holds is free again

  int image_tokens() const { return request.image_tokens(); }
  int views() const { return request.page ? static_cast<int>(request.page->views.size()) : 0; }
  int prompt_tokens() const { return request.prompt_tokens(); }
  int length() const { return prompt_tokens() + static_cast<int>(generated.size()); }
  bool seen() const {
    return !request.page || (vision && vision->views_done == views());
  }  // its image tokens are there

  RowClass ClassAt(int position) const { return position < prompt_tokens() ? RowClass::kPrompt : RowClass::kGenerated; }
  // The token id at a position, or the row of the embedding buffer for an image token.
  std::pair<TokenSource, int32_t> InputAt(int position) const;
  // The prompt as ids, -1 for image tokens: what a guard over the prompt looks at.
  std::vector<int32_t> PromptIds() const;
};

}  // namespace quire
