#include "image/decoder_client.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/check.h"

namespace quire {
namespace {

// A busy machine and the decoder's low priority stretch its processor seconds.
constexpr int kWallPerCpu = 10;

// A process is replaced after so many pictures: decoders leak on damaged ones.
constexpr int kMostExchanges = 500;

std::string SystemText() {
  return std::strerror(errno);
}

// What the system has just refused. Where no descriptor is left, trying later may work.
Error SystemError(ErrorKind kind, const std::string& what) {
  return {errno == EMFILE || errno == ENFILE ? ErrorKind::kBusy : kind, what + ": " + SystemText()};
}

// Memory that can be given to another process, of that size and empty.
UniqueFd MakeSharedMemory(int64_t bytes) {
  UniqueFd fd(memfd_create("quire", MFD_CLOEXEC));
  if (!fd || ftruncate(fd.get(), bytes) != 0)
    throw SystemError(ErrorKind::kOutOfMemory, "no shared memory of " + std::to_string(bytes) + " bytes");
  return fd;
}

// Moves all of data to or from fd by call (pread or pwrite); false when the file ends before.
template <typename Byte, typename Call>
bool TransferAll(std::span<Byte> data, int fd, const Call& call) {
  int64_t at = 0;
  while (!data.empty()) {
    const ssize_t done = call(fd, data.data(), data.size(), at);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    at += done;
    data = data.subspan(static_cast<size_t>(done));
  }
  return true;
}

std::string FindProgram(const std::string& named) {
  namespace fs = std::filesystem;
  std::vector<fs::path> candidates;
  if (!named.empty()) {
    candidates.push_back(named);
  } else {
    std::error_code none;
    const fs::path folder = fs::read_symlink("/proc/self/exe", none).parent_path();
    candidates = {folder / "quire-decode", folder.parent_path() / "quire-decode"};
  }
  for (const fs::path& candidate : candidates)
    if (access(candidate.c_str(), X_OK) == 0) return candidate.string();
  throw Error(ErrorKind::kUnsupported, "pictures are decoded by the program quire-decode, which was not found",
              candidates.front().string(), "build it with the option QUIRE_CODECS, or say where it is");
}

std::string DescribeEnd(int status, int cpu_seconds) {
  if (!WIFSIGNALED(status)) return "decoder ended (code " + std::to_string(WEXITSTATUS(status)) + ")";
  const int number = WTERMSIG(status);
  if (number == SIGKILL) return "decoder gave no answer and was ended";
  if (number == SIGXCPU) return "decoder took more than " + std::to_string(cpu_seconds) + " s of processor time";
  return "decoder died (signal " + std::to_string(number) + ", " + strsignal(number) + ")";
}

}  // namespace

PictureFile PictureFile::Open(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd)
    throw Error(errno == ENOENT || errno == ENOTDIR ? ErrorKind::kNotFound : ErrorKind::kIo,
                "cannot be opened: " + SystemText(), path);
  struct stat info;
  if (fstat(fd.get(), &info) != 0) throw Error(ErrorKind::kIo, "cannot be read: " + SystemText(), path);
  if (S_ISDIR(info.st_mode))
    throw Error(ErrorKind::kBadInput, "wanted a file, found a folder", path, "name the pictures in it");
  if (!S_ISREG(info.st_mode))
    throw Error(ErrorKind::kBadInput, "wanted a file, found a pipe or device", path,
                "its bytes can come by standard input");
  return {path, std::move(fd), info.st_size};
}

PictureFile PictureFile::FromBytes(std::span<const uint8_t> bytes, std::string name) {
  UniqueFd fd = MakeSharedMemory(static_cast<int64_t>(bytes.size()));
  if (!TransferAll(bytes, fd.get(), pwrite)) throw Error(ErrorKind::kOutOfMemory, "no memory for the picture", name);
  return {std::move(name), std::move(fd), static_cast<int64_t>(bytes.size())};
}

// Gives the process back when the exchange was finished, else ends it; the next user starts another.
class DecodePool::Lease {
 public:
  explicit Lease(DecodePool* pool) : pool_(*pool) {
    std::unique_lock lock(pool_.mutex_);
    pool_.freed_.wait(lock, [&] { return !pool_.idle_.empty(); });
    // A running one first.
    const auto running = std::ranges::find_if(pool_.idle_, [](const Process& process) { return process.pid >= 0; });
    const auto taken = running != pool_.idle_.end() ? running : pool_.idle_.begin();
    process_ = std::move(*taken);
    pool_.idle_.erase(taken);
  }
  ~Lease() {
    if (!finished_) End();
    const std::lock_guard lock(pool_.mutex_);
    pool_.idle_.push_back(std::move(process_));
    pool_.freed_.notify_one();
  }
  Lease(const Lease&) = delete;

  Process& process() { return process_; }
  void Finish() { finished_ = process_.exchanges < kMostExchanges; }

  // Ends the process, if it has not ended itself, and returns its status.
  int End() {
    if (process_.pid < 0) return 0;
    kill(process_.pid, SIGKILL);
    int status = 0;
    while (waitpid(process_.pid, &status, 0) < 0 && errno == EINTR) {
    }
    process_ = {};
    return status;
  }

 private:
  DecodePool& pool_;
  Process process_;
  bool finished_ = false;
};

DecodePool::DecodePool(DecodeOptions options) : options_(std::move(options)), idle_(std::max(options_.processes, 1)) {
  options_.program = FindProgram(options_.program);
}

DecodePool::~DecodePool() {
  for (size_t i = idle_.size(); i > 0; --i) Lease(this).End();
}

DecodePool::Process DecodePool::Start() const {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw SystemError(ErrorKind::kIo, "no socket for the decode process");
  Process process{-1, DecodeChannel(UniqueFd(ends[0]))};
  const UniqueFd theirs(ends[1]);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDIN_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  const std::string max_pixels = std::to_string(options_.max_pixels);
  const std::string max_bytes = std::to_string(options_.max_bytes);
  const char* const arguments[] = {options_.program.c_str(), max_pixels.c_str(), max_bytes.c_str(), nullptr};
  const int failed = posix_spawn(&process.pid, options_.program.c_str(), &actions, nullptr,
                                 const_cast<char* const*>(arguments), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0)
    throw Error(ErrorKind::kIo, std::string("the decode process cannot be started: ") + std::strerror(failed),
                options_.program);
  return process;
}

DecodeReply DecodePool::Await(Lease* lease) const {
  DecodeReply reply;
  if (lease->process().channel.Receive(&reply, nullptr, options_.cpu_seconds * kWallPerCpu * 1000)) return reply;
  const int status = lease->End();
  throw Error(ErrorKind::kBadInput, DescribeEnd(status, options_.cpu_seconds), {},
              WIFSIGNALED(status) ? "the picture is damaged, too large, or made to do harm"
                                  : "limits on memory or files may be too low for it");
}

DecodedPage DecodePool::Exchange(DecodeKind kind, const PictureFile& file, int page) {
  if (file.bytes() > options_.max_bytes)
    throw Error(ErrorKind::kTooLarge, "wanted at most " + std::to_string(options_.max_bytes) + " bytes, found " +
                                          std::to_string(file.bytes()));
  Lease lease(this);
  Process& process = lease.process();
  if (process.pid >= 0 && waitpid(process.pid, nullptr, WNOHANG) != 0) process = {};  // died while idle
  if (process.pid < 0) process = Start();
  ++process.exchanges;
  const DecodeChannel& channel = process.channel;

  DecodeRequest request{.kind = kind, .page = page, .cpu_seconds = options_.cpu_seconds};
  request.file_bytes = file.bytes();
  request.max_pixels = options_.max_pixels;
  request.raw_color = options_.raw_color;
  channel.Send(request, file.fd());  // a decoder that is gone is seen when its answer is awaited
  const DecodeReply header = Await(&lease);
  if (header.error_kind >= 0) lease.Finish();
  ThrowError(header);

  DecodedPage result;
  result.info = {std::string(header.format, strnlen(header.format, sizeof header.format)), header.pages,
                 header.width_px, header.height_px, header.orientation};
  const int64_t pixels = int64_t{header.width_px} * header.height_px;
  if (header.width_px < 1 || header.height_px < 1 || pixels > options_.max_pixels)
    throw Error(ErrorKind::kBadInput, "the decoder gave a size that cannot be");
  if (kind == DecodeKind::kDecode) {
    const UniqueFd memory = MakeSharedMemory(pixels * 3);
    channel.Send(PixelBuffer{pixels * 3}, memory.get());
    const DecodeReply done = Await(&lease);
    if (done.error_kind < 0) {
      result.image = Image(header.width_px, header.height_px);
      if (!TransferAll(std::span(result.image.rgb), memory.get(), pread))
        throw Error(ErrorKind::kBadInput, "the decoder took pixels away");
    }
    lease.Finish();
    ThrowError(done);
    result.warnings = GetLines(done);
  }
  lease.Finish();
  return result;
}

PictureInfo DecodePool::Inspect(const PictureFile& file, int page) {
  try {
    return Exchange(DecodeKind::kInspect, file, page).info;
  } catch (const Error& error) {
    throw error.Within(file.name());
  }
}

DecodedPage DecodePool::Decode(const PictureFile& file, int page) {
  try {
    return Exchange(DecodeKind::kDecode, file, page);
  } catch (const Error& error) {
    throw error.Within(file.name());
  }
}

}  // namespace quire
