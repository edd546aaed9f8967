#include "engine/host_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// An event is a token with its most probable others: under 1 KiB, and under 2 MiB where they are the vocabulary.
constexpr uint64_t kMostBytesOfMessage = 16 << 20;

// After SIGKILL: a driver that hangs can hold a process for ever.
constexpr milliseconds kMostDying{10'000};

pid_t Spawn(const std::vector<std::string>& command, int socket) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, socket, kHostSocket);
  posix_spawn_file_actions_addclosefrom_np(&files, kHostSocket + 1);  // clients' sockets among them
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);  // ^C is for the owner
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);

  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t pid = -1;
  const int failed = posix_spawn(&pid, arguments[0], &files, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0)
    throw Error(ErrorKind::kIo, std::string("the engine's process cannot be started: ") + std::strerror(failed),
                command[0]);
  return pid;
}

std::string DescribeEnd(int status) {
  if (WIFEXITED(status)) return "ended with code " + std::to_string(WEXITSTATUS(status));
  return "was ended by signal " + std::to_string(WTERMSIG(status)) + " (" + strsignal(WTERMSIG(status)) + ")";
}

}  // namespace

HostProcess::HostProcess(const std::vector<std::string>& command) : reader_(kMostBytesOfMessage) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw Error(ErrorKind::kIo, std::string("no socket for the engine's process: ") + std::strerror(errno));
  socket_ = UniqueFd(ends[0]);
  const UniqueFd theirs(ends[1]);
  pid_ = Spawn(command, theirs.get());
}

HostProcess::~HostProcess() {
  End(milliseconds(0));
}

void HostProcess::Put(std::shared_ptr<const std::string> frame) {
  if (frames_.empty()) unsent_ = *frame;
  frames_.push_back(std::move(frame));
}

void HostProcess::Send() {
  while (!frames_.empty()) {
    if (!SendBytes(fd(), MSG_DONTWAIT, &unsent_)) return frames_.clear();  // nobody will read them
    if (!unsent_.empty()) return;
    frames_.pop_front();
    if (!frames_.empty()) unsent_ = *frames_.front();
  }
}

bool HostProcess::Receive(std::vector<FromHost>* messages) {
  const bool open = reader_.Receive(fd(), MSG_DONTWAIT);
  while (const auto payload = reader_.Next()) messages->push_back(ParseFromHost(*payload));
  return open;
}

std::string HostProcess::End(milliseconds patience) {
  if (pid_ < 0) return {};
  socket_ = UniqueFd();
  int status = 0;
  auto wait = [&](milliseconds limit) {
    const auto until = Clock::now() + limit;
    pid_t ended;
    while ((ended = waitpid(pid_, &status, WNOHANG)) == 0 && Clock::now() < until)
      std::this_thread::sleep_for(milliseconds(1));
    return ended;
  };
  pid_t ended = wait(patience);
  if (ended == 0) {
    kill(pid_, SIGKILL);
    ended = wait(kMostDying);
  }
  const bool known = std::exchange(pid_, -1) == ended;
  if (ended == 0) return "hangs in the system and cannot be killed";
  return known ? DescribeEnd(status) : "ended";
}

}  // namespace quire
