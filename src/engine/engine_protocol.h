// What an engine in another process and its owner say to each other, over a stream socket. Both are one build.
//
//   owner (RemoteEngine)             host (RunEngineHost)
//                               <-   Ready, or Failed (and the host ends)
//   Submit id, request          ->
//                               <-   Event id: as a Ticket gives them. The first says that the request is admitted
//   Cancel id                   ->
//   AskStats                    ->
//                               <-   Stats
//                               <-   Failed: the device is lost (and the host ends)
//
// The host ends too when its socket closes. A frame is the length of its payload, 8 bytes, and the payload, a message.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"
#include "engine/engine.h"
#include "engine/request.h"

namespace quire {

struct SubmitMessage {
  uint64_t id;
  Request request;
};
struct CancelMessage {
  uint64_t id;
};
struct AskStatsMessage {
  uint64_t number;  // comes back with the answer
};
using ToHost = std::variant<SubmitMessage, CancelMessage, AskStatsMessage>;

struct ReadyMessage {
  BackendInfo backend_info;
  int context_tokens;
};
struct EventMessage {
  uint64_t id;
  Event event;
};
struct StatsMessage {
  uint64_t number;
  EngineStats stats;
};
struct FailedMessage {
  Error error{ErrorKind::kInternal, ""};
};
using FromHost = std::variant<ReadyMessage, EventMessage, StatsMessage, FailedMessage>;

// A frame with the message; a request's pixels are copied into it.
std::string ToFrame(ToHost message);
std::string ToFrame(FromHost message);

// Throw Error{kInternal} for a payload that is no such message. What is read has enumerators that exist.
ToHost ParseToHost(std::string_view payload);
FromHost ParseFromHost(std::string_view payload);

// Bytes of a socket in, payloads out. One thread.
class FrameReader {
 public:
  // The longest payload there can be.
  explicit FrameReader(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  // Takes what the socket has, once, by recv with these flags. False when the other end has closed it.
  bool Receive(int fd, int flags);
  // The next whole payload, good until the next call; none: more must come. Throws Error{kInternal} for a longer one.
  std::optional<std::string_view> Next();

 private:
  uint64_t max_bytes_;
  std::string bytes_;  // [taken_, filled_) has come and was not yet given out
  size_t taken_ = 0, filled_ = 0;
};

// Sends as much as the socket takes by send with these flags, and removes that from *bytes. False when the other end
// has closed it.
bool SendBytes(int fd, int flags, std::string_view* bytes);

}  // namespace quire
