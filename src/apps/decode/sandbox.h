// What the decode process takes from itself before it sees foreign bytes.
#pragma once

#include <cstdint>

namespace quire {

// Low priority, no files beyond those it holds, no core dumps, at most memory_bytes of address space, and, where
// libseccomp is built in, only the system calls that decoding needs: another one ends the process. Under a sanitizer
// the memory stays unlimited and system calls are not filtered, since it needs both.
void EnterSandbox(int64_t memory_bytes);

// The process is ended (SIGXCPU) when it uses more than that from now on.
void LimitCpu(int seconds);

}  // namespace quire
