#include "tests/cli/run.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <stdexcept>

namespace quire {
namespace {

struct Ends {
  int ours, theirs;
};

Ends Pipe(bool from_child) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  return from_child ? Ends{ends[0], ends[1]} : Ends{ends[1], ends[0]};
}

Ends Terminal() {
  int ours, theirs;
  const winsize size{.ws_row = 24, .ws_col = 100};
  if (openpty(&ours, &theirs, nullptr, nullptr, &size) != 0) throw std::runtime_error("no terminal");
  for (int fd : {ours, theirs}) fcntl(fd, F_SETFD, FD_CLOEXEC);
  return {ours, theirs};
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// In the child.
[[noreturn]] void Become(std::vector<std::string>& command, std::vector<std::string>& environment,
                         const RunOptions& options, const std::array<int, 3>& streams) {
  for (int fd = 0; fd < 3; ++fd) dup2(streams[fd], fd);
  for (int fd : options.closed) close(fd);
  for (int signal_number : {SIGINT, SIGTERM, SIGPIPE}) signal(signal_number, SIG_DFL);
  if (options.memory_bytes > 0) {
    const rlimit limit{static_cast<rlim_t>(options.memory_bytes), static_cast<rlim_t>(options.memory_bytes)};
    setrlimit(RLIMIT_AS, &limit);
  }
  if (!options.folder.empty() && chdir(options.folder.c_str()) != 0) _exit(126);
  execvpe(command[0].c_str(), Pointers(command).data(), Pointers(environment).data());
  _exit(127);
}

}  // namespace

RunResult RunProgram(std::vector<std::string> command, const RunOptions& options) {
  using Clock = std::chrono::steady_clock;
  signal(SIGPIPE, SIG_IGN);  // of a program that does not read its input
  const Ends in = options.input_is_terminal ? Terminal() : Pipe(false);
  const Ends out = Pipe(true);
  const Ends err = options.error_is_terminal ? Terminal() : Pipe(true);
  std::vector<std::string> environment = options.environment;
  environment.emplace_back("PATH=/usr/bin:/bin");

  const pid_t pid = fork();
  if (pid == 0) Become(command, environment, options, {in.theirs, out.theirs, err.theirs});
  for (const Ends& ends : {in, out, err}) close(ends.theirs);

  RunResult result;
  const auto until = Clock::now() + options.patience;
  size_t written = 0;
  bool input_open = true;
  std::array<bool, 2> open = {true, true};
  const std::array<int, 2> from = {out.ours, err.ours};
  while (open[0] || open[1]) {
    if (input_open && written == options.input.size() && !options.keep_input_open) {
      close(in.ours);
      input_open = false;
    }
    std::array<pollfd, 3> polled = {{{open[0] ? from[0] : -1, POLLIN, 0},
                                     {open[1] ? from[1] : -1, POLLIN, 0},
                                     {input_open && written < options.input.size() ? in.ours : -1, POLLOUT, 0}}};
    poll(polled.data(), polled.size(), 100);
    if (Clock::now() > until) kill(pid, SIGKILL);
    if (polled[2].revents != 0) {
      const ssize_t count = write(in.ours, options.input.data() + written, options.input.size() - written);
      written = count < 0 ? options.input.size() : written + static_cast<size_t>(count);
    }
    for (size_t i = 0; i < from.size(); ++i) {
      if (polled[i].revents == 0) continue;
      char bytes[65536];
      const ssize_t count = read(from[i], bytes, sizeof bytes);
      if (count <= 0) {  // a terminal whose other end is closed gives EIO
        open[i] = false;
        continue;
      }
      const std::string piece(bytes, static_cast<size_t>(count));
      (i == 0 ? result.out : result.err) += piece;
      if (i == 0) result.pieces.push_back(piece);
      if (i == 0 && options.on_output) options.on_output(piece, pid);
    }
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (input_open) close(in.ours);
  close(out.ours);
  close(err.ours);
  result.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

}  // namespace quire
