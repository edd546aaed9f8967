#include "apps/decode/sandbox.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#ifdef QUIRE_SECCOMP
#include <seccomp.h>
#endif

#include "base/error.h"

namespace quire {
namespace {

#ifndef __has_feature
#define __has_feature(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || __has_feature(address_sanitizer) || \
    __has_feature(thread_sanitizer)
constexpr bool kSanitizer = true;
#else
constexpr bool kSanitizer = false;
#endif

constexpr rlim_t kMostFiles = 16;

// A lower limit that the user has set stays.
void Limit(__rlimit_resource what, rlim_t most) {
  rlimit limit;
  if (getrlimit(what, &limit) == 0) most = std::min(most, limit.rlim_max);
  limit = {most, most};
  if (setrlimit(what, &limit) != 0) throw Error(ErrorKind::kInternal, "the decode process cannot limit itself");
}

#ifdef QUIRE_SECCOMP
// Memory, threads (libheif's decoders start some), the channel, and what the C library asks on its own.
constexpr int kAllowed[] = {
    SCMP_SYS(brk),
    SCMP_SYS(mmap),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(mprotect),
    SCMP_SYS(madvise),
    SCMP_SYS(clone),
    SCMP_SYS(clone3),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(rseq),
    SCMP_SYS(futex),
    SCMP_SYS(sched_yield),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(getcpu),
    SCMP_SYS(gettid),
    SCMP_SYS(getpid),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(tgkill),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(recvmsg),
    SCMP_SYS(sendmsg),
    SCMP_SYS(read),
    SCMP_SYS(write),
    SCMP_SYS(close),
    SCMP_SYS(lseek),
    SCMP_SYS(fstat),
    SCMP_SYS(prctl),
    SCMP_SYS(getrandom),
    SCMP_SYS(sysinfo),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(nanosleep),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(getrusage),
    SCMP_SYS(prlimit64),
    SCMP_SYS(getrlimit),
    SCMP_SYS(setrlimit),
};
// Asked for by libraries that can do without: the number of processors, time zones, messages.
constexpr int kRefused[] = {
    SCMP_SYS(open),   SCMP_SYS(openat),    SCMP_SYS(newfstatat), SCMP_SYS(stat),
    SCMP_SYS(access), SCMP_SYS(faccessat), SCMP_SYS(readlink),   SCMP_SYS(readlinkat),
    SCMP_SYS(ioctl),  SCMP_SYS(fcntl),     SCMP_SYS(uname),
};

void FilterSystemCalls() {
  const scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);
  bool good = filter != nullptr;
  for (int call : kAllowed) good = good && seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, 0) == 0;
  for (int call : kRefused) good = good && seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), call, 0) == 0;
  good = good && seccomp_load(filter) == 0;
  seccomp_release(filter);
  if (!good) throw Error(ErrorKind::kInternal, "the decode process cannot filter its system calls");
}
#else
void FilterSystemCalls() {}
#endif

}  // namespace

void EnterSandbox(int64_t memory_bytes) {
  constexpr int kNicer = 5;
  [[maybe_unused]] const int niceness = nice(kNicer);  // only a courtesy to the compute threads
  close_range(STDERR_FILENO + 1, ~0U, 0);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  Limit(RLIMIT_CORE, 0);
  Limit(RLIMIT_FSIZE, 0);
  Limit(RLIMIT_NOFILE, kMostFiles);
  if (kSanitizer) return;
  mallopt(M_ARENA_MAX, 2);  // each reserves 64 MB of the address space
  Limit(RLIMIT_AS, static_cast<rlim_t>(memory_bytes));
  FilterSystemCalls();
}

void LimitCpu(int seconds) {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  const rlim_t until = static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec + 2 + seconds);
  const rlimit limit{until, RLIM_INFINITY};  // at the soft limit comes SIGXCPU, at a hard one SIGKILL
  setrlimit(RLIMIT_CPU, &limit);
}

}  // namespace quire
