// An engine in another process, that is started again when it dies.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/request_limits.h"

namespace quire {

class HostProcess;
class Wakeup;
struct EventMessage;
struct ReadyMessage;
struct StatsMessage;

struct RemoteEngineOptions {
  std::vector<std::string> command;  // program and arguments; it calls RunEngineHost
  EngineOptions engine;              // as the process has them
  // The pause before a new process, doubled for each that ends before a request has been finished.
  std::chrono::milliseconds first_pause{100}, longest_pause{10'000};
  int most_failures = 5;  // so many such processes in a row: failed
  std::chrono::milliseconds failed_pause{30'000};
  // A process that has work and gives no event and finishes no round for so long hangs: it is killed. More than the
  // longest step or slice of vision, and what a device does before its first one.
  std::chrono::milliseconds hang_limit{120'000};
};

// Requests wait here; the process gets as many as it can run and a few more, in their turn (turn.h). When
// it ends or hangs, however that came, requests that it had admitted (those with an event) end with kError and
// Error{kDeviceLost}, and all others go to the next process.
//
// Health: kLoading until the first process is ready, and from the end of one until the next is ready; requests wait.
// kFailed after most_failures processes, or a first one that says why it cannot work: what waits ends with
// Error{kDeviceLost} and Submit throws it. A new process is still tried every failed_pause, and when one gets ready the
// health is kReady again.
//
// Threads: one of the engine's own drives the process and puts all events; it waits for nothing but poll. Callers share
// the queue and the state with it, under mutex_.
class RemoteEngine : public Engine {
 public:
  // Starts the process; does not wait for it. config: of the model that the process loads.
  RemoteEngine(ModelConfig config, RemoteEngineOptions options);
  ~RemoteEngine() override;
  RemoteEngine(const RemoteEngine&) = delete;
  RemoteEngine& operator=(const RemoteEngine&) = delete;

  std::shared_ptr<Ticket> Submit(Request request) override;
  const ModelConfig& config() const override { return config_; }
  const BackendInfo& backend_info() const override;  // empty until the first process is ready
  int context_tokens() const override;
  // Asks the process and waits 100 ms at most; without an answer, what it last said. Counts are of all processes; what
  // one did in its last second may be missing.
  EngineStats stats() const override;
  EngineHealth health() const override;
  void WaitReady() override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Pending {
    Clock::time_point turn;                    // TurnOf
    std::shared_ptr<const std::string> frame;  // of its SubmitMessage, until it is admitted
    std::shared_ptr<Ticket> ticket;
    std::optional<Clock::time_point> deadline;
    Usage usage;  // so far
    Clock::time_point submitted, sent;
    bool admitted = false, cancel_sent = false;
  };

  // On the engine's thread.
  void Keep();
  void StartProcess();
  bool Tend();  // what callers want; false: that the engine ends
  void EndUnwanted();
  void FillProcess();
  void Poll();
  void Receive();
  void OnReady(ReadyMessage& message);
  void OnEvent(EventMessage& message);
  void OnStats(const StatsMessage& message);
  // When the process counts as hung.
  Clock::time_point hang_time() const;
  // The process is gone, or must go within `patience`. why: what is known beside the way it ended.
  void OnEnd(const std::optional<Error>& why, std::chrono::milliseconds patience);
  static void PutEnd(const Pending& request, EndReason reason, const std::optional<Error>& error = {});

  const ModelConfig config_;
  const RemoteEngineOptions options_;
  const std::shared_ptr<Wakeup> wakeup_;  // shared with tickets, which may outlive the engine

  // The thread's.
  std::unique_ptr<HostProcess> process_;
  bool ready_ = false;      // the process is
  bool was_ready_ = false;  // one was
  int failures_ = 0;        // in a row
  bool woken_ = false;      // something was submitted, canceled or put back
  Clock::time_point next_start_, next_ask_, next_deadline_ = Clock::time_point::max();
  Clock::time_point last_sign_;  // of the process's life, or when it got work
  uint64_t stats_sent_ = 0;

  mutable std::mutex mutex_;  // guards what follows
  mutable std::condition_variable changed_;
  RequestLimits limits_;
  std::optional<BackendInfo> backend_info_;  // of the first process; never changed then
  EngineHealth health_{EngineHealth::State::kLoading, ""};
  std::optional<Error> failure_;  // when failed
  uint64_t last_id_ = 0;
  std::map<std::pair<Clock::time_point, uint64_t>, Pending> waiting_;  // by turn and id
  std::map<uint64_t, Pending> sent_;                                   // by id
  EngineStats past_, present_;  // of processes that have ended; what the one that runs has said last
  int64_t starts_ = 0;
  mutable uint64_t stats_asked_ = 0;
  uint64_t stats_answered_ = 0;
  bool stop_ = false;

  std::thread thread_;
};

}  // namespace quire
