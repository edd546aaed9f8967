#include "engine/local_engine.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

double MsSince(Sequence::Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Sequence::Clock::now() - start).count();
}

int PagesOf(int tokens) {
  return (tokens + kPageTokens - 1) / kPageTokens;
}

EngineOptions Checked(const EngineOptions& options) {
  auto want = [](const char* name, int found, int least) {
    if (found < least)
      throw Error(ErrorKind::kUsage, std::string(name) + ": wanted at least " + std::to_string(least) + ", found " +
                                         std::to_string(found));
  };
  want("max_sequences", options.max_sequences, 1);
  want("max_step_rows", options.max_step_rows, 1);
  want("context_tokens", options.context_tokens, 0);
  want("kv_pages", options.kv_pages, 0);
  want("image_tokens", options.image_tokens, 0);
  return options;
}

int KvPageCount(const EngineOptions& options, int context_tokens) {
  const int one = PagesOf(context_tokens);
  if (options.kv_pages == 0) return one * options.max_sequences;
  if (options.kv_pages < one)
    throw Error(ErrorKind::kUsage,
                "wanted a KV cache of at least " + std::to_string(one) + " pages for a context of " +
                    std::to_string(context_tokens) + " tokens, found " + std::to_string(options.kv_pages),
                "", "give the cache more memory or lower the context");
  return options.kv_pages;
}

void CheckIds(std::span<const int32_t> ids, int vocab) {
  for (const int32_t id : ids)
    if (id < 0 || id >= vocab)
      throw Error(ErrorKind::kUsage, "the prompt holds the token " + std::to_string(id) + ", the model has 0 to " +
                                         std::to_string(vocab - 1));
}

// The exception that is being handled. One that is no Error is a bug, which fails requests and not the engine.
Error CurrentError() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(ErrorKind::kOutOfMemory, "host memory does not suffice");
  } catch (const std::exception& error) {
    return Error(ErrorKind::kInternal, error.what());
  }
}

}  // namespace

const char* Name(EndReason reason) {
  constexpr const char* kNames[] = {"stop", "length", "loop", "canceled", "deadline", "error"};
  return kNames[static_cast<int>(reason)];
}

LocalEngine::LocalEngine(std::unique_ptr<Model> model, const Tokenizer& tokenizer, const EngineOptions& options)
    : model_(std::move(model)),
      tokenizer_(tokenizer),
      options_(Checked(options)),
      context_tokens_(options.context_tokens ? std::min(options.context_tokens, model_->config().lm.max_positions)
                                             : model_->config().lm.max_positions),
      quiet_ids_{model_->config().lm.bos_id, model_->config().lm.eos_id},
      stream_(model_->backend().CreateStream()),
      arena_(model_->backend()),
      pages_(KvPageCount(options, context_tokens_)),
      step_({options.max_step_rows, options.max_sequences, PagesOf(context_tokens_)}) {
  if (const auto pad = tokenizer.Find("<｜▁pad▁｜>")) quiet_ids_.push_back(*pad);
  state_ = model_->CreateState(pages_.total(), options.max_sequences,
                               int64_t{options.max_sequences} * options.image_tokens, &embedding_memory_);
  outputs_.keep_logits = options.keep_logits;
  for (int slot = options.max_sequences - 1; slot >= 0; --slot) free_slots_.push_back(slot);
  thread_ = std::thread([this] { Drive(); });
}

LocalEngine::~LocalEngine() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

std::shared_ptr<Ticket> LocalEngine::Submit(Request request) {
  auto s = std::make_unique<Sequence>(Sequence{.request = std::move(request),
                                               .ticket = std::make_shared<Ticket>(),
                                               .text = StreamDecoder(tokenizer_, quiet_ids_),
                                               .submitted = Sequence::Clock::now()});
  CheckIds(s->request.before, config().lm.vocab);
  CheckIds(s->request.after, config().lm.vocab);
  const int prompt = s->prompt_tokens(), room = context_tokens_ - prompt;
  if (prompt == 0) throw Error(ErrorKind::kUsage, "the prompt is empty");
  if (s->image_tokens() > options_.image_tokens)
    throw Error(ErrorKind::kTooLarge, "wanted a page of at most " + std::to_string(options_.image_tokens) +
                                          " image tokens, found " + std::to_string(s->image_tokens()));
  if (room <= 0)
    throw Error(ErrorKind::kTooLarge, "the prompt has " + std::to_string(prompt) + " tokens, the context holds " +
                                          std::to_string(context_tokens_) + " with the output");
  s->usage.prompt_tokens = prompt;
  s->usage.image_tokens = s->image_tokens();
  s->usage.max_tokens = s->request.max_tokens > 0 ? std::min(s->request.max_tokens, room) : room;
  const std::shared_ptr<Ticket> ticket = s->ticket;
  {
    std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(s));
  }
  wake_.notify_one();
  return ticket;
}

EngineStats LocalEngine::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

void LocalEngine::Drive() {
  while (Wait()) {
    Admit();
    EndUnwanted();
    SeeNextView();
    RunStep();
    RemoveEnded();
  }
  for (const SequencePtr& s : running_) End(*s, EndReason::kCanceled);
  for (const SequencePtr& s : waiting_) End(*s, EndReason::kCanceled);
}

bool LocalEngine::Wait() {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [&] { return stop_ || !waiting_.empty() || !running_.empty(); });
  return !stop_;
}

void LocalEngine::Admit() {
  std::lock_guard lock(mutex_);
  while (!waiting_.empty() && !free_slots_.empty()) {
    Sequence& s = *running_.emplace_back(std::move(waiting_.front()));
    waiting_.pop_front();
    s.slot = free_slots_.back();
    free_slots_.pop_back();
    s.first_embedding = int64_t{s.slot} * options_.image_tokens;
    s.usage.queued_ms = MsSince(s.submitted);
    state_.samplers->Reset(s.slot, s.request.sampling, s.PromptIds(), {});
  }
}

void LocalEngine::EndUnwanted() {
  const auto now = Sequence::Clock::now();
  auto check = [&](const SequencePtr& s) {
    if (s->ticket->canceled()) {
      End(*s, EndReason::kCanceled);
    } else if (s->request.deadline && now >= *s->request.deadline) {
      End(*s, EndReason::kDeadline);
    }
    return s->ended;
  };
  for (const SequencePtr& s : running_) check(s);
  RemoveEnded();
  std::lock_guard lock(mutex_);
  std::erase_if(waiting_, check);
}

// One view an iteration, so that a page of many tiles holds up the others by one view at a time.
void LocalEngine::SeeNextView() {
  const auto next = std::ranges::find_if(running_, [](const SequencePtr& s) { return !s->seen(); });
  if (next == running_.end()) return;
  Sequence& s = **next;
  const auto start = Sequence::Clock::now();
  try {
    const ViewInput view{&s.request.page->plan, s.views_done, s.request.page->views[s.views_done].data(),
                         s.first_embedding};
    Context c{*stream_, arena_};
    model_->See(c, {&view, 1}, state_.embeddings);
    ++s.views_done;
    s.usage.vision_ms += MsSince(start);
    s.ticket->Put(StageEvent{StageEvent::Stage::kVision, s.views_done, s.views()});
  } catch (const std::exception& error) {
    End(s, EndReason::kError, error.what(), CurrentError());
  }
}

void LocalEngine::RunStep() {
  std::vector<Sequence*> ready;
  for (const SequencePtr& s : running_)
    if (s->seen() && !s->ended) ready.push_back(s.get());
  const std::vector<Chunk> chunks = Schedule(ready, options_.max_step_rows, &pages_);
  if (chunks.empty()) return;
  const auto start = Sequence::Clock::now();
  try {
    FillStep(chunks, &step_);
    Context c{*stream_, arena_};
    model_->Step(c, step_, state_, &outputs_);
  } catch (const std::exception& error) {
    for (const Chunk& chunk : chunks) End(*chunk.sequence, EndReason::kError, error.what(), CurrentError());
    return;
  }
  const double ms = MsSince(start);

  std::vector<Sequence*> of_slot(static_cast<size_t>(options_.max_sequences), nullptr);
  for (const Chunk& chunk : chunks) {
    Sequence& s = *chunk.sequence;
    const double share = ms * chunk.count / step_.rows();
    (s.computed < s.prompt_tokens() ? s.usage.prefill_ms : s.usage.decode_ms) += share;
    s.computed += chunk.count;
    of_slot[s.slot] = &s;
    if (s.computed <= s.prompt_tokens() && s.generated.empty())
      s.ticket->Put(StageEvent{StageEvent::Stage::kPrefill, s.computed, s.prompt_tokens()});
  }
  for (size_t i = 0; i < outputs_.samples.size(); ++i) {
    Sequence& s = *of_slot[step_.slots()[step_.logits_rows()[i]]];
    if (probe && options_.keep_logits) probe(s, outputs_.logits[i]);
    Deliver(s, outputs_.samples[i]);
  }
}

void LocalEngine::Deliver(Sequence& s, const Sample& sample) {
  s.confidence.Push(sample.logprob);
  if (sample.token == config().lm.eos_id) return End(s, EndReason::kStop);
  s.generated.push_back(sample.token);
  s.usage.output_tokens = static_cast<int>(s.generated.size());
  s.ticket->Put(TokenEvent{sample.token, s.text.Push(sample.token), sample.logprob, sample.top});
  if (s.request.detect_loops) {
    const std::string& bytes = tokenizer_.Bytes(sample.token);
    if (const auto loop = s.blocks.Push(sample.token, bytes)) return End(s, EndReason::kLoop, *loop);
    if (const auto loop = s.boxes.Push(bytes)) return End(s, EndReason::kLoop, *loop);
  }
  if (s.usage.output_tokens >= s.usage.max_tokens) End(s, EndReason::kLength);
}

void LocalEngine::End(Sequence& s, EndReason reason, std::string detail, std::optional<Error> error) {
  if (s.ended) return;
  s.ended = true;
  if (s.slot < 0) s.usage.queued_ms = MsSince(s.submitted);  // never admitted
  s.ticket->Put(EndEvent{.reason = reason,
                         .detail = std::move(detail),
                         .text = s.text.Finish(),
                         .usage = s.usage,
                         .confidence = s.confidence.result(),
                         .error = std::move(error)});
}

void LocalEngine::RemoveEnded() {
  for (const SequencePtr& s : running_) {
    if (!s->ended) continue;
    pages_.Release(&s->pages);
    free_slots_.push_back(s->slot);
  }
  running_.remove_if([](const SequencePtr& s) { return s->ended; });
}

}  // namespace quire
