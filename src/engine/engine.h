// The engine as its callers see it: requests in, events out, many at once.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "engine/request.h"
#include "engine/ticket.h"
#include "engine/turn.h"
#include "model/config.h"

namespace quire {

// How an engine is made.
struct EngineOptions {
  int max_sequences = 8;    // alive at once; more wait
  int max_step_rows = 512;  // tokens in a forward call: longer prompts run in chunks
  int context_tokens = 0;   // prompt and output together; 0: the model's
  // The KV cache in bytes, or in pages of kPageTokens tokens, which goes before. Both 0: a full context for each of
  // max_sequences, but no more than this share of the free memory. At least one context, at most one for each sequence.
  int64_t kv_cache_bytes = 0;
  int kv_pages = 0;
  double kv_memory_share = 0.5;
  int image_tokens = 2048;        // at most, of one page
  int64_t vision_rows = 0;        // image tokens in memory; 0: image_tokens for each of max_sequences and 8 pages more
  double vision_budget_ms = 100;  // of vision between two steps while something decodes; at least one view
  int priority_step_ms = kPriorityStepMs;
  bool keep_logits = false;  // tests: Probe sees the logits
};

// Counts since the engine began, and what it holds now.
struct EngineStats {
  int64_t waiting = 0, running = 0;  // requests: not admitted yet; admitted
  int64_t kv_pages = 0, kv_pages_used = 0;
  int64_t prompt_tokens = 0, output_tokens = 0;  // computed first; generated
  int64_t steps = 0, step_rows = 0;              // rows of all steps: recomputed ones among them
  int64_t views = 0, vision_slices = 0;          // seen by the vision tower; its calls
  int64_t rounds = 0;                            // of the engine's loop: it lives
  int64_t preemptions = 0;
  int64_t vision_hits = 0, vision_misses = 0;     // pages whose image tokens were there already, or not
  int64_t vision_rows = 0, vision_rows_used = 0;  // of the store of image tokens: all, and those of running requests
  int64_t vision_rows_kept = 0;                   // of pages that nobody reads now: until their rows are needed
  int64_t restarts = 0;                           // of the device part
  double vision_s = 0, step_s = 0;                // time of the device
};

// Where an engine stands.
struct EngineHealth {
  enum class State { kLoading, kReady, kFailed };
  State state = State::kReady;
  std::string cause;  // when failed
};

// All functions may be called from any thread. The destructor cancels what runs.
class Engine {
 public:
  virtual ~Engine() = default;

  // Throws Error{kUsage} or {kTooLarge} at once for a request that can never run: an empty prompt, one longer than the
  // context, a token that the model does not have, a bad stop string; {kDeviceLost} when the device is gone for good.
  virtual std::shared_ptr<Ticket> Submit(Request request) = 0;

  virtual const ModelConfig& config() const = 0;
  virtual const BackendInfo& backend_info() const = 0;
  virtual int context_tokens() const = 0;
  virtual EngineStats stats() const = 0;
  virtual EngineHealth health() const = 0;
  // Waits while it is loading. Throws the Error by which it failed.
  virtual void WaitReady() {}
};

}  // namespace quire
