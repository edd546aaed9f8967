// An engine in a process of its own, for a RemoteEngine: after some errors of a GPU only a new process can use it.
#pragma once

#include <functional>
#include <memory>

#include "engine/engine.h"

namespace quire {

// Makes an engine and lets it be driven over the socket (engine_protocol.h) until that closes. Returns the exit code
// with which the process should end: of the Error that make_engine threw (the owner is told of it). When the device is
// lost the process ends here, with that kind's code (75). From here on the process ignores the signals that ask it to
// end, which are for its owner, and dies with the thread that started it.
//
// Threads: the caller's reads the socket, one of its own writes it, so that the engine's never waits for the owner.
int RunEngineHost(int socket_fd, const std::function<std::unique_ptr<Engine>()>& make_engine);

}  // namespace quire
