#include "engine/engine_host.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/unique_fd.h"
#include "engine/engine_protocol.h"

namespace quire {
namespace {

// Messages on their way to the owner: put by any thread, sent by its own, as many at once as there are.
class Outbox {
 public:
  explicit Outbox(int fd) : fd_(fd), thread_([this] { Run(); }) {}
  ~Outbox() { Finish(); }

  // Sends the rest. What is put later goes nowhere.
  void Finish() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      end_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  void Put(FromHost message) {
    const std::string frame = ToFrame(std::move(message));
    {
      const std::lock_guard lock(mutex_);
      bytes_ += frame;
    }
    wake_.notify_one();
  }

 private:
  void Run() {
    std::string sending;
    for (bool open = true; open; sending.clear()) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return end_ || !bytes_.empty(); });
        if (bytes_.empty()) return;
        sending.swap(bytes_);
      }
      std::string_view left = sending;
      open = SendBytes(fd_, 0, &left);  // an owner that is gone is seen by the thread that reads
    }
  }

  const int fd_;
  std::mutex mutex_;  // guards bytes_ and end_
  std::condition_variable wake_;
  std::string bytes_;
  bool end_ = false;
  std::thread thread_;
};

// Reads what the owner says. Owned by one thread; OnEvent and OnError are called on the engine's too.
class Host {
 public:
  explicit Host(int fd) : fd_(fd), outbox_(fd) {}

  int Run(const std::function<std::unique_ptr<Engine>()>& make_engine) {
    try {
      engine_ = make_engine();
    } catch (const std::exception&) {
      const Error error = CurrentError();
      outbox_.Put(FailedMessage{error});
      return Info(error.kind()).exit_code;
    }
    outbox_.Put(ReadyMessage{engine_->backend_info(), engine_->context_tokens()});

    FrameReader reader(std::numeric_limits<int64_t>::max());
    while (reader.Receive(fd_, 0))
      while (const auto payload = reader.Next()) {
        ToHost message = ParseToHost(*payload);
        std::visit([&](auto& choice) { Handle(choice); }, message);
      }
    if (lost_) {  // what holds the device may not end any more
      outbox_.Finish();
      std::_Exit(Info(ErrorKind::kDeviceLost).exit_code);
    }
    return 0;
  }

 private:
  void Handle(SubmitMessage& message) {
    std::erase_if(tickets_, [](const auto& entry) { return entry.second.expired(); });
    const uint64_t id = message.id;
    try {
      const std::shared_ptr<Ticket> ticket = engine_->Submit(std::move(message.request));
      ticket->Forward([this, id](Event event) { Deliver(id, std::move(event)); });
      tickets_[id] = ticket;
    } catch (const std::exception&) {
      const Error error = CurrentError();
      Deliver(id, EndEvent{.reason = EndReason::kError, .detail = error.what(), .error = error});
    }
  }
  void Handle(const CancelMessage& message) {
    if (const auto at = tickets_.find(message.id); at != tickets_.end())
      if (const auto ticket = at->second.lock()) ticket->Cancel();
  }
  void Handle(const AskStatsMessage& message) { outbox_.Put(StatsMessage{message.number, engine_->stats()}); }

  // Also on the engine's thread. A lost device is the end of the process, not of a request: which ones it fails is for
  // the owner to say.
  void Deliver(uint64_t id, Event event) {
    const auto* end = std::get_if<EndEvent>(&event);
    if (end == nullptr || !end->error || end->error->kind() != ErrorKind::kDeviceLost) {
      outbox_.Put(EventMessage{id, std::move(event)});
    } else if (!lost_.exchange(true)) {
      outbox_.Put(FailedMessage{*end->error});
      shutdown(fd_, SHUT_RD);  // ends Run
    }
  }

  const int fd_;
  Outbox outbox_;
  std::atomic<bool> lost_{false};
  std::map<uint64_t, std::weak_ptr<Ticket>> tickets_;  // the engine drops those that have ended
  std::unique_ptr<Engine> engine_;                     // puts its last events into the outbox
};

}  // namespace

int RunEngineHost(int socket_fd, const std::function<std::unique_ptr<Engine>()>& make_engine) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, SIG_IGN);
  const UniqueFd socket(socket_fd);
  return Host(socket.get()).Run(make_engine);
}

}  // namespace quire
