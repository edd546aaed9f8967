// The engine in this process.
//
// submit -> admit (a slot, rows for the image tokens) -> see (vision, in slices) -> schedule (rows of the next step) ->
// run -> deliver -> release. One thread of its own drives the device and owns all that is not said to be shared;
// callers hold Tickets. More: docs/engine.md.
#pragma once

#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/kv_pages.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/vision_pace.h"
#include "engine/vision_store.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

namespace quire {

class LocalEngine : public Engine {
 public:
  // tokenizer must outlive the engine. Throws Error{kOutOfMemory}, {kUsage} for options out of range, as a cache
  // smaller than one context.
  LocalEngine(std::unique_ptr<Model> model, const Tokenizer& tokenizer, const EngineOptions& options);
  ~LocalEngine() override;
  LocalEngine(const LocalEngine&) = delete;
  LocalEngine& operator=(const LocalEngine&) = delete;

  std::shared_ptr<Ticket> Submit(Request request) override;
  const ModelConfig& config() const override { return model_->config(); }
  const BackendInfo& backend_info() const override { return model_->backend().info(); }
  int context_tokens() const override { return context_tokens_; }
  EngineStats stats() const override;
  // Failed from the first Error{kDeviceLost} of the model on: all requests end with it, Submit throws it. The process
  // cannot use the device again.
  EngineHealth health() const override;

  // Tests: called on the engine's thread with a generated token's sequence and logits. Set before the first Submit.
  std::function<void(const Sequence&, std::span<const float>)> probe;

 private:
  using SequencePtr = std::unique_ptr<Sequence>;

  // A view that waits, and the sequence whose pixels it is seen by.
  struct Look {
    Sequence* sequence;
    ViewInput input;
  };
  static std::vector<int> SidesOf(std::span<const Look> looks);

  void Drive();                          // the thread
  bool Wait();                           // for work; false: the engine ends
  void EndUnwanted();                    // canceled ones and those past their deadline
  void EndAllIfLost();                   // the device
  std::vector<SequencePtr> TakeEnded();  // off running_; what they held is free again
  void Admit();
  void PublishStats();
  void SeeViews();
  void See(std::span<const Look> looks);  // in one call
  void RunStep();
  void Deliver(Sequence& s, const Sample& sample);
  void End(Sequence& s, EndReason reason, std::string detail = {}, std::optional<Error> error = {});
  void Fail(Sequence& s, const Error& error);

  std::unique_ptr<Model> model_;
  const Tokenizer& tokenizer_;
  EngineOptions options_;
  int context_tokens_;
  std::vector<int32_t> quiet_ids_;  // begin, end and pad: never text

  std::unique_ptr<Stream> stream_;
  Arena arena_;
  std::unique_ptr<DeviceBuffer> embedding_memory_;
  DecoderState state_;
  VisionStore store_;
  VisionPace pace_;
  KvPages pages_;
  std::vector<int> free_slots_;
  std::list<SequencePtr> running_;  // by turn
  StepInputs step_;
  StepOutputs outputs_;
  EngineStats counts_;

  mutable std::mutex mutex_;  // guards stats_, waiting_, lost_ and stop_
  std::condition_variable wake_;
  EngineStats stats_;                                                // counts_ of the last iteration
  std::multimap<Sequence::Clock::time_point, SequencePtr> waiting_;  // by turn
  std::optional<Error> lost_;                                        // the device; written by the thread
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace quire
