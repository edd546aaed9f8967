// What callers give the engine, and the events they get back.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "backend/sampling.h"
#include "base/content_hash.h"
#include "base/error.h"
#include "engine/confidence.h"
#include "model/view_plan.h"

namespace quire {

// A page ready for the model: its plan, and for each view of it the pixels, [side, side, 3] RGB.
struct PagePixels {
  PagePlan plan;
  std::vector<std::vector<uint8_t>> views;
  std::optional<Hash128> key;  // of views and plan: pages of one key are seen once; none: not shared
};

inline constexpr size_t kMaxStops = 4;

// One page to read. The prompt is `before`, the page's image tokens, `after`.
struct Request {
  std::vector<int32_t> before;  // token ids; the begin token among them, first
  std::vector<int32_t> after;
  std::shared_ptr<const PagePixels> page;  // none: a prompt without a picture
  SamplingParams sampling;
  int max_tokens = 0;             // generated; 0, or more than the context leaves: what the context leaves
  std::vector<std::string> stop;  // the text ends before the first of these: at most kMaxStops, none empty
  bool detect_loops = true;       // end a page whose blocks or boxes repeat (repeat_guard.h)
  int priority = 0;               // lower ones are admitted first and keep their pages longer (turn.h)
  std::optional<std::chrono::steady_clock::time_point> deadline;

  int image_tokens() const { return page ? static_cast<int>(page->plan.tokens.size()) : 0; }
  int prompt_tokens() const { return static_cast<int>(before.size() + after.size()) + image_tokens(); }
};

enum class EndReason {
  kStop,      // the model's end token, or a stop string
  kLength,    // max_tokens or the context
  kLoop,      // a repeat detector
  kCanceled,  // the caller
  kDeadline,  // the request's own limit in time
  kError,
};
const char* Name(EndReason reason);

struct Usage {
  int prompt_tokens = 0;  // image tokens included
  int image_tokens = 0;
  int output_tokens = 0;  // without the end token
  int max_tokens = 0;     // the limit that held
  double queued_ms = 0, vision_ms = 0;
  double prefill_ms = 0, decode_ms = 0;  // of steps shared with others, the share of its rows
  int preemptions = 0;
};

// Work on a page has come this far. The first event of a request that runs is one of these, when it leaves the
// queue; done: what is there already.
struct StageEvent {
  enum class Stage { kVision, kPrefill };
  Stage stage;
  int done, total;  // views; prompt tokens
};

struct TokenEvent {
  int32_t id;
  std::string text;  // what became complete with this token: may be empty, never half a character
  float logprob;     // natural log of the softmax of the raw logits
  std::vector<std::pair<int32_t, float>> top;
};

// Always the last event.
struct EndEvent {
  EndReason reason;
  std::string detail;  // "4 repeats of a block of 120 tokens", for people; may be empty
  std::string text;    // what was left: of an unfinished character, of what might have begun a stop string
  std::string stop;    // with kStop: the stop string that ended the text; empty for the end token
  Usage usage;
  Confidence confidence;
  std::optional<Error> error;  // with kError
};

using Event = std::variant<StageEvent, TokenEvent, EndEvent>;

}  // namespace quire
