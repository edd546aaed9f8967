#include "base/mmap_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

struct Descriptor {
  int fd;
  ~Descriptor() { close(fd); }
};

[[noreturn]] void Fail(const std::string& path, const char* doing) {
  const int code = errno;
  throw Error(code == ENOENT || code == ENOTDIR ? ErrorKind::kNotFound
              : code == ENOMEM                  ? ErrorKind::kOutOfMemory
                                                : ErrorKind::kIo,
              std::string("cannot ") + doing + ": " + std::strerror(code), path);
}

Descriptor Open(const std::string& path, struct stat* info) {
  Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) Fail(path, "open");
  if (fstat(file.fd, info) != 0) Fail(path, "stat");
  if (S_ISDIR(info->st_mode)) throw Error(ErrorKind::kIo, "wanted a file, found a folder", path);
  return file;
}

}  // namespace

MmapFile::MmapFile(const std::string& path) : path_(path) {
  struct stat info;
  const Descriptor file = Open(path, &info);
  size_ = static_cast<size_t>(info.st_size);
  if (size_ == 0) return;
  void* at = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (at == MAP_FAILED) Fail(path, "map");
  data_ = static_cast<const uint8_t*>(at);
}

MmapFile::MmapFile(MmapFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MmapFile& MmapFile::operator=(MmapFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MmapFile::~MmapFile() {
  if (data_) munmap(const_cast<uint8_t*>(data_), size_);
}

void MmapFile::DropPages(std::span<const uint8_t> part) const {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t first = (reinterpret_cast<uintptr_t>(part.data()) + page - 1) / page * page;
  const uintptr_t last = reinterpret_cast<uintptr_t>(part.data() + part.size()) / page * page;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

std::string ReadFile(const std::string& path, size_t max_bytes) {
  struct stat info;
  const Descriptor file = Open(path, &info);
  std::string text;
  char block[65536];
  for (;;) {
    const ssize_t n = read(file.fd, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) Fail(path, "read");
    if (n == 0) return text;
    text.append(block, static_cast<size_t>(n));
    if (text.size() > max_bytes)
      throw Error(ErrorKind::kTooLarge, "wanted at most " + std::to_string(max_bytes) + " bytes, the file has more",
                  path);
  }
}

}  // namespace quire
