// The engine: requests in, events out, many at once.
//
// submit -> admit (a slot) -> see (vision, a view at a time) -> schedule (rows of the next step) -> run -> deliver ->
// release. One thread of its own drives the device and owns all that is not said to be shared; callers hold Tickets.
#pragma once

#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/kv_pages.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/ticket.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

namespace quire {

struct EngineOptions {
  int max_sequences = 8;     // alive at once; more wait
  int max_step_rows = 512;   // tokens in a forward call: longer prompts run in chunks
  int context_tokens = 0;    // prompt and output together; 0: the model's
  int kv_pages = 0;          // pages of kPageTokens tokens; 0: a full context for each of max_sequences
  int image_tokens = 2048;   // at most, of one page
  bool keep_logits = false;  // tests: Probe sees the logits
};

class Engine {
 public:
  // tokenizer must outlive the engine. Throws Error{kOutOfMemory}, {kUsage} for options out of range, as a cache
  // smaller than one context.
  Engine(std::unique_ptr<Model> model, const Tokenizer& tokenizer, const EngineOptions& options);
  ~Engine();  // cancels what runs
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Any thread. Throws Error{kUsage} or {kTooLarge} at once for a request that can never run: an empty prompt, one
  // longer than the context, a token that the model does not have.
  std::shared_ptr<Ticket> Submit(Request request);

  const ModelConfig& config() const { return model_->config(); }
  const BackendInfo& backend_info() const { return model_->backend().info(); }
  int context_tokens() const { return context_tokens_; }

  // Tests: called on the engine's thread with a generated token's sequence and logits. Set before the first Submit.
  std::function<void(const Sequence&, std::span<const float>)> probe;

 private:
  using SequencePtr = std::unique_ptr<Sequence>;

  void Drive();  // the thread
  bool Wait();   // for work; false: the engine ends
  void Admit();
  void EndUnwanted();  // canceled ones and those past their deadline
  void SeeNextView();
  void RunStep();
  void Deliver(Sequence& s, const Sample& sample);
  void End(Sequence& s, EndReason reason, std::string detail = {}, std::optional<Error> error = {});
  void RemoveEnded();

  std::unique_ptr<Model> model_;
  const Tokenizer& tokenizer_;
  EngineOptions options_;
  int context_tokens_;
  std::vector<int32_t> quiet_ids_;  // begin, end and pad: never text

  std::unique_ptr<Stream> stream_;
  Arena arena_;
  std::unique_ptr<DeviceBuffer> embedding_memory_;
  DecoderState state_;
  KvPages pages_;
  std::vector<int> free_slots_;
  std::list<SequencePtr> running_;  // oldest first
  StepInputs step_;
  StepOutputs outputs_;

  std::mutex mutex_;  // guards waiting_ and stop_
  std::condition_variable wake_;
  std::deque<SequencePtr> waiting_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace quire
