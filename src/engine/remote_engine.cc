#include "engine/remote_engine.h"

#include <poll.h>

#include <algorithm>

#include "base/clock.h"
#include "engine/host_process.h"
#include "engine/wakeup.h"

namespace quire {
namespace {

using std::chrono::milliseconds;

constexpr int kAhead = 2;                       // requests in the process beyond those that it can run
constexpr milliseconds kPatience{1000};         // for a process that is asked to end
constexpr milliseconds kAskEvery{1000};         // for counts, while requests run
constexpr milliseconds kPatienceForStats{100};  // of a caller

double Ms(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

// What is held now, and the counts of now and past.
EngineStats Sum(EngineStats now, const EngineStats& past) {
  for (const auto count : {&EngineStats::prompt_tokens, &EngineStats::output_tokens, &EngineStats::steps,
                           &EngineStats::step_rows, &EngineStats::views, &EngineStats::vision_slices,
                           &EngineStats::preemptions, &EngineStats::vision_hits, &EngineStats::vision_misses})
    now.*count += past.*count;
  for (const auto time : {&EngineStats::vision_s, &EngineStats::step_s}) now.*time += past.*time;
  return now;
}

}  // namespace

RemoteEngine::RemoteEngine(ModelConfig config, RemoteEngineOptions options)
    : config_(std::move(config)),
      options_(std::move(options)),
      wakeup_(std::make_shared<Wakeup>()),
      limits_(LimitsOf(options_.engine, config_)),
      thread_([this] { Keep(); }) {}

RemoteEngine::~RemoteEngine() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wakeup_->Wake();
  thread_.join();
}

std::shared_ptr<Ticket> RemoteEngine::Submit(Request request) {
  const auto now = Clock::now();
  Pending pending{.turn = TurnOf(request.priority, now, options_.engine.priority_step_ms),
                  .ticket = std::make_shared<Ticket>([wakeup = wakeup_] { wakeup->Wake(); }),
                  .deadline = request.deadline,
                  .submitted = now};
  const std::shared_ptr<Ticket> ticket = pending.ticket;
  uint64_t id;
  {
    const std::lock_guard lock(mutex_);
    pending.usage = CheckRequest(request, limits_);
    id = ++last_id_;
  }
  pending.frame = std::make_shared<const std::string>(ToFrame(SubmitMessage{id, std::move(request)}));
  {
    const std::lock_guard lock(mutex_);
    if (failure_) throw Error(ErrorKind::kDeviceLost, failure_->what());
    waiting_.emplace(std::pair(pending.turn, id), std::move(pending));
  }
  wakeup_->Wake();
  return ticket;
}

const BackendInfo& RemoteEngine::backend_info() const {
  static const BackendInfo none{.dtype = DType::kF32};
  const std::lock_guard lock(mutex_);
  return backend_info_ ? *backend_info_ : none;
}

int RemoteEngine::context_tokens() const {
  const std::lock_guard lock(mutex_);
  return limits_.context_tokens;
}

EngineStats RemoteEngine::stats() const {
  std::unique_lock lock(mutex_);
  const uint64_t number = ++stats_asked_;
  wakeup_->Wake();
  changed_.wait_for(lock, kPatienceForStats,
                    [&] { return stats_answered_ >= number || health_.state != EngineHealth::State::kReady; });
  EngineStats stats = Sum(present_, past_);
  stats.running = std::ranges::count_if(sent_, [](const auto& entry) { return entry.second.admitted; });
  stats.waiting = static_cast<int64_t>(waiting_.size() + sent_.size()) - stats.running;
  stats.restarts = std::max<int64_t>(starts_ - 1, 0);
  return stats;
}

EngineHealth RemoteEngine::health() const {
  const std::lock_guard lock(mutex_);
  return health_;
}

void RemoteEngine::WaitReady() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return health_.state != EngineHealth::State::kLoading; });
  if (failure_) throw *failure_;
}

void RemoteEngine::Keep() {
  while (Tend()) {
    if (!process_ && Clock::now() >= next_start_) StartProcess();
    if (process_) process_->Send();
    Poll();
  }
  const std::lock_guard lock(mutex_);
  for (const auto& [key, request] : waiting_) PutEnd(request, EndReason::kCanceled);
  for (const auto& [id, request] : sent_) PutEnd(request, EndReason::kCanceled);
  if (process_ && ready_) process_->End(kPatience);
  process_.reset();
}

void RemoteEngine::StartProcess() {
  {
    const std::lock_guard lock(mutex_);
    ++starts_;
  }
  try {
    process_ = std::make_unique<HostProcess>(options_.command);
  } catch (const Error& error) {
    OnEnd(error, kPatience);
  }
}

bool RemoteEngine::Tend() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(woken_, false) || Clock::now() >= next_deadline_) EndUnwanted();
  if (ready_) FillProcess();
  return !stop_;
}

void RemoteEngine::EndUnwanted() {
  const auto now = Clock::now();
  next_deadline_ = Clock::time_point::max();
  std::erase_if(waiting_, [&](const auto& entry) {
    const Pending& request = entry.second;
    const bool canceled = request.ticket->canceled();
    if (canceled || (request.deadline && now >= *request.deadline)) {
      PutEnd(request, canceled ? EndReason::kCanceled : EndReason::kDeadline);
      return true;
    }
    if (request.deadline) next_deadline_ = std::min(next_deadline_, *request.deadline);
    return false;
  });
  for (auto& [id, request] : sent_) {
    if (!request.ticket->canceled() || std::exchange(request.cancel_sent, true)) continue;
    process_->Put(std::make_shared<const std::string>(ToFrame(CancelMessage{id})));
  }
}

void RemoteEngine::FillProcess() {
  while (!waiting_.empty() && sent_.size() < static_cast<size_t>(options_.engine.max_sequences + kAhead)) {
    const auto first = waiting_.begin();
    if (sent_.empty()) last_sign_ = Clock::now();
    Pending& request = sent_[first->first.second] = std::move(first->second);
    waiting_.erase(first);
    request.sent = Clock::now();
    process_->Put(request.frame);
  }
  if (!sent_.empty() && Clock::now() >= next_ask_) ++stats_asked_;
  if (stats_asked_ > stats_sent_) {
    stats_sent_ = stats_asked_;
    next_ask_ = Clock::now() + kAskEvery;
    process_->Put(std::make_shared<const std::string>(ToFrame(AskStatsMessage{stats_sent_})));
  }
}

void RemoteEngine::Poll() {
  auto until = next_deadline_;
  if (!process_) until = std::min(until, next_start_);
  if (ready_ && !sent_.empty()) until = std::min(until, next_ask_);
  until = std::min(until, hang_time());
  int timeout_ms = -1;
  if (until != Clock::time_point::max())
    timeout_ms = static_cast<int>(std::clamp<int64_t>(std::chrono::ceil<milliseconds>(until - Clock::now()).count(), 0,
                                                      options_.failed_pause.count()));

  pollfd polled[] = {{wakeup_->fd(), POLLIN, 0}, {process_ ? process_->fd() : -1, POLLIN, 0}};
  if (process_ && !process_->sent_all()) polled[1].events |= POLLOUT;
  if (poll(polled, std::size(polled), timeout_ms) < 0) return;
  if (polled[0].revents != 0) {
    wakeup_->Clear();
    woken_ = true;
  }
  if ((polled[1].revents & ~POLLOUT) != 0) {
    Receive();
  } else if (Clock::now() >= hang_time()) {
    OnEnd(Error(ErrorKind::kDeviceLost,
                "it had work and gave no sign of life for " + std::to_string(options_.hang_limit.count()) + " ms"),
          milliseconds(0));
  }
}

RemoteEngine::Clock::time_point RemoteEngine::hang_time() const {
  return ready_ && !sent_.empty() ? last_sign_ + options_.hang_limit : Clock::time_point::max();
}

void RemoteEngine::Receive() {
  std::vector<FromHost> messages;
  bool open = true;
  std::optional<Error> why;
  try {
    open = process_->Receive(&messages);
  } catch (const Error& error) {
    why = error;
  }
  {
    const std::lock_guard lock(mutex_);
    for (FromHost& message : messages) {
      if (auto* ready = std::get_if<ReadyMessage>(&message)) OnReady(*ready);
      if (auto* event = std::get_if<EventMessage>(&message)) OnEvent(*event);
      if (auto* stats = std::get_if<StatsMessage>(&message)) OnStats(*stats);
      if (auto* failed = std::get_if<FailedMessage>(&message)) why = std::move(failed->error);
    }
  }
  if (!open || why) OnEnd(why, kPatience);
}

void RemoteEngine::OnReady(ReadyMessage& message) {
  ready_ = was_ready_ = true;
  if (!backend_info_) backend_info_ = std::move(message.backend_info);
  limits_.context_tokens = message.context_tokens;
  health_ = {EngineHealth::State::kReady, ""};
  failure_.reset();
  changed_.notify_all();
}

void RemoteEngine::OnEvent(EventMessage& message) {
  const auto at = sent_.find(message.id);
  if (at == sent_.end()) return;
  last_sign_ = Clock::now();
  Pending& request = at->second;
  if (!std::exchange(request.admitted, true)) {
    request.frame.reset();
    request.usage.queued_ms = MsSince(request.submitted);
  }
  if (std::holds_alternative<TokenEvent>(message.event)) ++request.usage.output_tokens;
  auto* end = std::get_if<EndEvent>(&message.event);
  if (end != nullptr) end->usage.queued_ms += Ms(request.sent - request.submitted);
  request.ticket->Put(std::move(message.event));
  if (end == nullptr) return;
  sent_.erase(at);
  failures_ = 0;
}

void RemoteEngine::OnStats(const StatsMessage& message) {
  if (message.stats.rounds != present_.rounds) last_sign_ = Clock::now();
  present_ = message.stats;
  stats_answered_ = message.number;
  changed_.notify_all();
}

void RemoteEngine::OnEnd(const std::optional<Error>& why, milliseconds patience) {
  std::string text = process_ ? "the engine's process " + process_->End(patience) : "";
  if (why) text += (text.empty() ? "" : ": ") + std::string(why->what());
  const Error lost(ErrorKind::kDeviceLost, text);
  process_.reset();
  ready_ = false;
  woken_ = true;
  ++failures_;
  if (why && !was_ready_) failures_ = std::max(failures_, options_.most_failures);
  const bool failed = failures_ >= options_.most_failures;
  next_start_ = Clock::now() +
                (failed ? options_.failed_pause
                        : std::min(options_.first_pause * (1 << std::min(failures_ - 1, 20)), options_.longest_pause));

  const std::lock_guard lock(mutex_);
  for (auto& [id, request] : sent_) {
    if (request.admitted) {
      PutEnd(request, EndReason::kError, lost);
    } else {
      waiting_.emplace(std::pair(request.turn, id), std::move(request));
    }
  }
  sent_.clear();
  past_ = Sum(std::exchange(present_, {}), past_);
  stats_sent_ = stats_answered_;
  if (failed) {
    for (const auto& [key, request] : waiting_) PutEnd(request, EndReason::kError, lost);
    waiting_.clear();
    failure_ = was_ready_ || !why ? lost : *why;
    health_ = {EngineHealth::State::kFailed, failure_->what()};
  } else {
    health_ = {EngineHealth::State::kLoading, ""};
  }
  changed_.notify_all();
}

void RemoteEngine::PutEnd(const Pending& request, EndReason reason, const std::optional<Error>& error) {
  EndEvent end{.reason = reason, .usage = request.usage, .error = error};
  if (!request.admitted) end.usage.queued_ms = MsSince(request.submitted);
  if (error) end.detail = error->what();
  request.ticket->Put(std::move(end));
}

}  // namespace quire
