#include "engine/local_engine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/request_limits.h"

namespace quire {
namespace {

// Beside those of the running requests, as image_tokens each: what asks about the same pages soon.
constexpr int kKeptPages = 8;
// While nothing decodes, vision delays nobody's next token.
constexpr double kIdleBudgets = 4;
// In one call: bounds the memory of its activations.
constexpr size_t kMaxViews = 16;

int PagesOf(int tokens) {
  return (tokens + kPageTokens - 1) / kPageTokens;
}

EngineOptions Checked(const EngineOptions& options) {
  auto want = [](const char* name, auto found, int least) {
    if (!(found >= least))
      throw Error(ErrorKind::kUsage, std::string(name) + ": wanted at least " + std::to_string(least) + ", found " +
                                         std::to_string(found));
  };
  want("max_sequences", options.max_sequences, 1);
  want("max_step_rows", options.max_step_rows, 1);
  want("context_tokens", options.context_tokens, 0);
  want("kv_pages", options.kv_pages, 0);
  want("kv_cache_bytes", options.kv_cache_bytes, 0);
  want("image_tokens", options.image_tokens, 0);
  want("vision_rows", options.vision_rows, options.vision_rows ? options.image_tokens : 0);
  want("vision_budget_ms", options.vision_budget_ms, 0);
  want("priority_step_ms", options.priority_step_ms, 0);
  return options;
}

int KvPageCount(const EngineOptions& options, int context_tokens, Model& model) {
  const int64_t one = PagesOf(context_tokens), all = one * options.max_sequences, page_bytes = model.KvPageBytes();
  if (options.kv_pages == 0 && options.kv_cache_bytes == 0)
    return static_cast<int>(std::clamp(
        static_cast<int64_t>(options.kv_memory_share * static_cast<double>(model.backend().FreeBytes())) / page_bytes,
        one, all));
  const int64_t found = options.kv_pages ? options.kv_pages : options.kv_cache_bytes / page_bytes;
  if (options.kv_cache_bytes > all * page_bytes)
    Log(LogLevel::kInfo, "the KV cache takes " + std::to_string(all * page_bytes) + " bytes, not " +
                             std::to_string(options.kv_cache_bytes) + ": a full context for each of " +
                             std::to_string(options.max_sequences) + " pages at once is all that is ever used");
  const int64_t bytes = std::min(found, all) * page_bytes, free = model.backend().FreeBytes();
  if (options.kv_cache_bytes > 0 && bytes > free)
    throw Error(ErrorKind::kUsage,
                "wanted a KV cache of at most the " + std::to_string(free) + " bytes that are free, found " +
                    std::to_string(bytes),
                "", "give it less memory");
  if (found < one) {
    auto say = [&](int64_t pages) {
      return std::to_string(pages) + " pages (" + std::to_string(pages * page_bytes) + " bytes)";
    };
    throw Error(ErrorKind::kUsage,
                "wanted a KV cache of at least " + say(one) + " for a context of " + std::to_string(context_tokens) +
                    " tokens, found " + say(found),
                "", "give the cache more memory or lower the context");
  }
  return static_cast<int>(std::min(found, all));
}

int64_t VisionRows(const EngineOptions& options) {
  return options.vision_rows ? options.vision_rows
                             : (int64_t{options.max_sequences} + kKeptPages) * options.image_tokens;
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
      context_tokens_(LimitsOf(options, model_->config()).context_tokens),
      quiet_ids_(QuietIds(tokenizer, model_->config().lm.bos_id, model_->config().lm.eos_id)),
      stream_(model_->backend().CreateStream()),
      arena_(model_->backend()),
      store_(VisionRows(options)),
      pages_(KvPageCount(options, context_tokens_, *model_)),
      step_({options.max_step_rows, options.max_sequences, PagesOf(context_tokens_)}) {
  if (options.context_tokens > context_tokens_)
    Log(LogLevel::kWarning, "a context of " + std::to_string(options.context_tokens) +
                                " tokens was asked for, the model has " + std::to_string(context_tokens_) +
                                ", which is used");
  state_ = model_->CreateState(pages_.total(), options.max_sequences, store_.rows(), &embedding_memory_);
  outputs_.keep_logits = options.keep_logits;
  for (int slot = options.max_sequences - 1; slot >= 0; --slot) free_slots_.push_back(slot);
  PublishStats();
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
  s->usage = CheckRequest(s->request, LimitsOf(options_, config()));
  s->stops = StopStrings(s->request.stop);
  s->turn = TurnOf(s->request.priority, s->submitted, options_.priority_step_ms);
  const std::shared_ptr<Ticket> ticket = s->ticket;
  {
    std::lock_guard lock(mutex_);
    if (lost_) throw *lost_;
    waiting_.emplace(s->turn, std::move(s));
  }
  wake_.notify_one();
  return ticket;
}

EngineStats LocalEngine::stats() const {
  std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.waiting = static_cast<int64_t>(waiting_.size());
  return stats;
}

EngineHealth LocalEngine::health() const {
  std::lock_guard lock(mutex_);
  if (!lost_) return {};
  return {EngineHealth::State::kFailed, lost_->what()};
}

void LocalEngine::Drive() {
  while (Wait()) {
    ++counts_.rounds;
    EndUnwanted();
    EndAllIfLost();
    {
      const std::vector<SequencePtr> ended = TakeEnded();
      Admit();
      PublishStats();
      for (const SequencePtr& s : ended) s->ticket->Put(std::move(*s->end));
    }
    SeeViews();
    RunStep();
  }
  for (const SequencePtr& s : running_) End(*s, EndReason::kCanceled);
  for (auto& [turn, s] : waiting_) {
    End(*s, EndReason::kCanceled);
    running_.push_back(std::move(s));
  }
  for (const SequencePtr& s : running_) s->ticket->Put(std::move(*s->end));
}

bool LocalEngine::Wait() {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [&] { return stop_ || !waiting_.empty() || !running_.empty(); });
  return !stop_;
}

void LocalEngine::EndUnwanted() {
  const auto now = Sequence::Clock::now();
  auto check = [&](Sequence& s) {
    if (s.ticket->canceled()) {
      End(s, EndReason::kCanceled);
    } else if (s.request.deadline && now >= *s.request.deadline) {
      End(s, EndReason::kDeadline);
    }
    return s.end.has_value();
  };
  for (const SequencePtr& s : running_) check(*s);
  std::lock_guard lock(mutex_);
  std::erase_if(waiting_, [&](const auto& item) {
    Sequence& s = *item.second;
    if (!check(s)) return false;
    s.ticket->Put(std::move(*s.end));
    return true;
  });
}

void LocalEngine::EndAllIfLost() {
  decltype(waiting_) waiting;
  {
    std::lock_guard lock(mutex_);
    if (!lost_) return;
    waiting.swap(waiting_);  // Submit adds none any more
  }
  for (const SequencePtr& s : running_) Fail(*s, *lost_);
  for (const auto& [turn, s] : waiting) {
    Fail(*s, *lost_);
    s->ticket->Put(std::move(*s->end));
  }
}

std::vector<LocalEngine::SequencePtr> LocalEngine::TakeEnded() {
  std::vector<SequencePtr> ended;
  for (SequencePtr& s : running_) {
    if (!s->end) continue;
    pages_.Release(&s->pages);
    if (s->vision) store_.Release(s->vision);
    free_slots_.push_back(s->slot);
    ended.push_back(std::move(s));
  }
  std::erase(running_, nullptr);
  return ended;
}

void LocalEngine::Admit() {
  std::lock_guard lock(mutex_);
  while (!waiting_.empty() && !free_slots_.empty()) {
    SequencePtr& first = waiting_.begin()->second;
    Sequence& s = *first;
    if (s.request.page && !(s.vision = store_.Acquire(s.request.page->key, s.image_tokens()))) return;
    s.slot = free_slots_.back();
    free_slots_.pop_back();
    s.usage.queued_ms = MsSince(s.submitted);
    state_.samplers->Reset(s.slot, s.request.sampling, s.PromptIds(), {});
    s.ticket->Put(s.vision ? StageEvent{StageEvent::Stage::kVision, s.vision->views_done, s.views()}
                           : StageEvent{StageEvent::Stage::kPrefill, 0, s.prompt_tokens()});
    auto behind = [&](const SequencePtr& other) { return other->turn > s.turn; };
    running_.insert(std::ranges::find_if(running_, behind), std::move(first));
    waiting_.erase(waiting_.begin());
  }
}

void LocalEngine::PublishStats() {
  EngineStats& c = counts_;
  c.running = static_cast<int64_t>(running_.size());
  c.kv_pages = pages_.total();
  c.kv_pages_used = pages_.total() - pages_.available();
  c.vision_hits = store_.hits();
  c.vision_misses = store_.misses();
  c.vision_rows = store_.rows();
  c.vision_rows_used = store_.used_rows();
  c.vision_rows_kept = store_.kept_rows();
  std::lock_guard lock(mutex_);
  stats_ = c;
}

std::vector<int> LocalEngine::SidesOf(std::span<const Look> looks) {
  std::vector<int> sides_px;
  for (const Look& look : looks) sides_px.push_back(look.input.plan->views[look.input.view].side_px);
  return sides_px;
}

void LocalEngine::SeeViews() {
  std::vector<Look> looks;
  std::vector<const VisionStore::Entry*> chosen;
  bool decoding = false;
  for (const SequencePtr& s : running_) {
    decoding |= !s->generated.empty();
    if (s->seen() || std::ranges::count(chosen, s->vision)) continue;  // another one's pixels are the same
    chosen.push_back(s->vision);
    for (int view = s->vision->views_done; view < s->views() && looks.size() < kMaxViews; ++view)
      looks.push_back(
          {s.get(), {&s->request.page->plan, view, s->request.page->views[view].data(), s->vision->first_row}});
  }
  if (looks.empty()) return;
  const double budget_ms = options_.vision_budget_ms * (decoding ? 1 : kIdleBudgets);
  looks.resize(pace_.CountWithin(SidesOf(looks), budget_ms));
  See(looks);
}

// What fails with views of several pages is tried again page by page, so that a page that cannot be seen fails alone.
void LocalEngine::See(std::span<const Look> looks) {
  std::vector<ViewInput> inputs;
  for (const Look& look : looks) inputs.push_back(look.input);
  const auto start = Sequence::Clock::now();
  try {
    Context c{*stream_, arena_};
    model_->See(c, inputs, state_.embeddings);
  } catch (const std::exception&) {
    const Error error = CurrentError();
    const auto next = std::ranges::find_if(looks, [&](const Look& l) { return l.sequence != looks[0].sequence; });
    const auto of_first = looks.first(static_cast<size_t>(next - looks.begin()));
    if (of_first.size() == looks.size() || error.kind() == ErrorKind::kDeviceLost) {
      for (const Look& look : looks) Fail(*look.sequence, error);
    } else {
      See(of_first);
      See(looks.subspan(of_first.size()));
    }
    return;
  }
  const double ms = MsSince(start);
  ++counts_.vision_slices;
  counts_.views += static_cast<int64_t>(looks.size());
  counts_.vision_s += ms / 1000;
  const std::vector<double> shares_ms = pace_.Learn(SidesOf(looks), ms);
  for (size_t i = 0; i < looks.size(); ++i) {
    looks[i].sequence->usage.vision_ms += shares_ms[i];
    ++looks[i].sequence->vision->views_done;
  }
  for (const SequencePtr& s : running_)
    if (std::ranges::any_of(looks, [&](const Look& look) { return look.sequence->vision == s->vision; }))
      s->ticket->Put(StageEvent{StageEvent::Stage::kVision, s->vision->views_done, s->views()});
}

void LocalEngine::RunStep() {
  std::vector<Sequence*> ready;
  for (const SequencePtr& s : running_)
    if (s->seen() && !s->end) ready.push_back(s.get());
  auto preemptions = [&] {
    int64_t sum = 0;
    for (const Sequence* s : ready) sum += s->usage.preemptions;
    return sum;
  };
  counts_.preemptions -= preemptions();
  const std::vector<Chunk> chunks = Schedule(ready, options_.max_step_rows, &pages_);
  counts_.preemptions += preemptions();
  if (chunks.empty()) return;
  const auto start = Sequence::Clock::now();
  try {
    FillStep(chunks, &step_);
    Context c{*stream_, arena_};
    model_->Step(c, step_, state_, &outputs_);
  } catch (const std::exception&) {
    const Error error = CurrentError();
    for (const Chunk& chunk : chunks) Fail(*chunk.sequence, error);
    return;
  }
  const double ms = MsSince(start);
  ++counts_.steps;
  counts_.step_rows += step_.rows();
  counts_.step_s += ms / 1000;

  std::vector<Sequence*> of_slot(static_cast<size_t>(options_.max_sequences), nullptr);
  for (const Chunk& chunk : chunks) {
    Sequence& s = *chunk.sequence;
    const double share = ms * chunk.count / step_.rows();
    (s.computed < s.prompt_tokens() ? s.usage.prefill_ms : s.usage.decode_ms) += share;
    s.computed += chunk.count;
    of_slot[s.slot] = &s;
    if (s.computed > s.prompt_tokens() || !s.generated.empty()) continue;
    s.ticket->Put(StageEvent{StageEvent::Stage::kPrefill, s.computed, s.prompt_tokens()});
    if (s.computed == s.prompt_tokens()) counts_.prompt_tokens += s.prompt_tokens();
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
  ++counts_.output_tokens;
  s.ticket->Put(TokenEvent{sample.token, s.stops.Push(s.text.Push(sample.token)), sample.logprob, sample.top});
  if (!s.stops.found().empty()) return End(s, EndReason::kStop);
  if (s.request.detect_loops) {
    const std::string& bytes = tokenizer_.Bytes(sample.token);
    if (const auto loop = s.blocks.Push(sample.token, bytes)) return End(s, EndReason::kLoop, *loop);
    if (const auto loop = s.boxes.Push(bytes)) return End(s, EndReason::kLoop, *loop);
  }
  if (s.usage.output_tokens >= s.usage.max_tokens) End(s, EndReason::kLength);
}

void LocalEngine::End(Sequence& s, EndReason reason, std::string detail, std::optional<Error> error) {
  if (s.end) return;
  if (s.slot < 0) s.usage.queued_ms = MsSince(s.submitted);  // never admitted
  std::string rest = s.stops.Push(s.text.Finish());
  rest += s.stops.Finish();
  s.end = EndEvent{.reason = reason,
                   .detail = std::move(detail),
                   .text = std::move(rest),
                   .stop = s.stops.found(),
                   .usage = s.usage,
                   .confidence = s.confidence.result(),
                   .error = std::move(error)};
}

void LocalEngine::Fail(Sequence& s, const Error& error) {
  if (error.kind() == ErrorKind::kDeviceLost && !lost_) {
    std::lock_guard lock(mutex_);
    lost_ = error;
  }
  End(s, EndReason::kError, error.what(), error);
}

}  // namespace quire
