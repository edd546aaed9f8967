// Wakes a thread that waits in poll.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/unique_fd.h"

namespace quire {

class Wakeup {
 public:
  Wakeup() {
    if (!fd_) throw Error(ErrorKind::kIo, std::string("no event descriptor: ") + std::strerror(errno));
  }
  // Any thread. fd() can be read until Clear.
  void Wake() const { eventfd_write(fd_.get(), 1); }
  void Clear() const {
    eventfd_t count;
    eventfd_read(fd_.get(), &count);
  }
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

}  // namespace quire
