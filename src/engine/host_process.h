// The process that holds a device: started, spoken to without waiting, ended.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "engine/engine_protocol.h"

namespace quire {

inline constexpr int kHostSocket = 3;  // the descriptor of its socket in the process

// One thread: the process dies with the thread that made it.
class HostProcess {
 public:
  // command: program and arguments. The process has its own process group, standard error of this one, no other
  // descriptor but the socket. Throws Error{kIo}.
  explicit HostProcess(const std::vector<std::string>& command);
  ~HostProcess();  // kills it
  HostProcess(const HostProcess&) = delete;
  HostProcess& operator=(const HostProcess&) = delete;

  int fd() const { return socket_.get(); }
  // Puts a frame into the queue of those to be sent, which has no bound.
  void Put(std::shared_ptr<const std::string> frame);
  bool sent_all() const { return frames_.empty(); }
  // Sends what the socket takes now. That the other end is gone is seen by Receive.
  void Send();
  // Adds what has come; false when the process has closed its end. Throws Error{kInternal} for what is no message;
  // those before it are added.
  bool Receive(std::vector<FromHost>* messages);

  // Closes the socket, waits that long for the process to end, and kills it. Says how it ended: "ended with code 75".
  std::string End(std::chrono::milliseconds patience);

 private:
  UniqueFd socket_;
  pid_t pid_ = -1;
  std::deque<std::shared_ptr<const std::string>> frames_;
  std::string_view unsent_;  // of the first frame
  FrameReader reader_;
};

}  // namespace quire
