#include "engine/engine_protocol.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/wire.h"

namespace quire {
namespace {

constexpr size_t kHeaderBytes = sizeof(uint64_t);
constexpr size_t kLeastRoom = 64 << 10;  // of a recv

}  // namespace

template <typename Wire>
void Pass(Wire& wire, DType& value) {
  PassEnum(wire, value, DType::kU8);
}
template <typename Wire>
void Pass(Wire& wire, EndReason& value) {
  PassEnum(wire, value, EndReason::kError);
}
template <typename Wire>
void Pass(Wire& wire, StageEvent::Stage& value) {
  PassEnum(wire, value, StageEvent::Stage::kPrefill);
}

template <typename Wire>
void Pass(Wire& wire, Error& value) {
  ErrorKind kind = value.kind();
  std::string what = value.message(), where = value.where(), hint = value.hint();
  PassEnum(wire, kind, ErrorKind::kInternal);
  Pass(wire, what, where, hint);
  if constexpr (Wire::kReads) value = Error(kind, std::move(what), std::move(where), std::move(hint));
}

template <typename Wire>
void Pass(Wire& wire, PagePlan& value) {
  auto& [frame, columns, rows, views, tokens] = value;
  Pass(wire, frame, columns, rows, views, tokens);
}
template <typename Wire>
void Pass(Wire& wire, PagePixels& value) {
  auto& [plan, views, key] = value;
  Pass(wire, plan, views, key);
}
template <typename Wire>
void Pass(Wire& wire, SamplingParams& value) {
  auto& [temperature, top_p, top_k, seed, size, window, whitelist, over_prompt, top_logprobs] = value;
  Pass(wire, temperature, top_p, top_k, seed, size, window, whitelist, over_prompt, top_logprobs);
}
template <typename Wire>
void Pass(Wire& wire, Request& value) {
  auto& [before, after, page, sampling, max_tokens, stop, detect_loops, priority, deadline] = value;
  Pass(wire, before, after, page, sampling, max_tokens, stop, detect_loops, priority, deadline);
}

template <typename Wire>
void Pass(Wire& wire, StageEvent& value) {
  auto& [stage, done, total] = value;
  Pass(wire, stage, done, total);
}
template <typename Wire>
void Pass(Wire& wire, TokenEvent& value) {
  auto& [id, text, logprob, top] = value;
  Pass(wire, id, text, logprob, top);
}
template <typename Wire>
void Pass(Wire& wire, EndEvent& value) {
  auto& [reason, detail, text, stop, usage, confidence, error] = value;
  Pass(wire, reason, detail, text, stop, usage, confidence, error);
}
template <typename Wire>
void Pass(Wire& wire, BackendInfo& value) {
  auto& [name, device, dtype, threads, view_batch] = value;
  Pass(wire, name, device, dtype, threads, view_batch);
}

template <typename Wire>
void Pass(Wire& wire, SubmitMessage& value) {
  Pass(wire, value.id, value.request);
}
template <typename Wire>
void Pass(Wire& wire, ReadyMessage& value) {
  Pass(wire, value.backend_info, value.context_tokens);
}
template <typename Wire>
void Pass(Wire& wire, EventMessage& value) {
  Pass(wire, value.id, value.event);
}
template <typename Wire>
void Pass(Wire& wire, FailedMessage& value) {
  Pass(wire, value.error);
}

namespace {

template <typename Message>
void AppendFrame(Message& message, std::string* frame) {
  frame->resize(kHeaderBytes);
  WireWriter writer(frame);
  Pass(writer, message);
  const uint64_t bytes = frame->size() - kHeaderBytes;
  std::memcpy(frame->data(), &bytes, kHeaderBytes);
}

template <typename Message>
Message Parse(std::string_view payload) {
  WireReader reader(payload);
  Message message;
  Pass(reader, message);
  if (!reader.done()) WireReader::Refuse();
  return message;
}

}  // namespace

std::string ToFrame(ToHost message) {
  std::string frame;
  AppendFrame(message, &frame);
  return frame;
}

std::string ToFrame(FromHost message) {
  std::string frame;
  AppendFrame(message, &frame);
  return frame;
}

ToHost ParseToHost(std::string_view payload) {
  return Parse<ToHost>(payload);
}

FromHost ParseFromHost(std::string_view payload) {
  return Parse<FromHost>(payload);
}

bool FrameReader::Receive(int fd, int flags) {
  uint64_t wanted = 0;  // of the frame at hand; Next has refused one that is too long
  filled_ -= taken_;
  std::memmove(bytes_.data(), bytes_.data() + std::exchange(taken_, 0), filled_);
  if (filled_ >= kHeaderBytes) std::memcpy(&wanted, bytes_.data(), kHeaderBytes);
  bytes_.resize(std::max({bytes_.size(), filled_ + kLeastRoom, kHeaderBytes + wanted}));

  ssize_t count;
  do {
    count = recv(fd, bytes_.data() + filled_, bytes_.size() - filled_, flags);
  } while (count < 0 && errno == EINTR);
  if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
  filled_ += static_cast<size_t>(count);
  return count > 0;
}

std::optional<std::string_view> FrameReader::Next() {
  if (filled_ - taken_ < kHeaderBytes) return {};
  uint64_t bytes;
  std::memcpy(&bytes, bytes_.data() + taken_, kHeaderBytes);
  if (bytes > max_bytes_)
    throw Error(ErrorKind::kInternal, "a message of " + std::to_string(bytes) + " bytes cannot be");
  if (filled_ - taken_ - kHeaderBytes < bytes) return {};
  const std::string_view payload(bytes_.data() + taken_ + kHeaderBytes, bytes);
  taken_ += kHeaderBytes + bytes;
  return payload;
}

bool SendBytes(int fd, int flags, std::string_view* bytes) {
  while (!bytes->empty()) {
    const ssize_t count = send(fd, bytes->data(), bytes->size(), flags | MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    bytes->remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

}  // namespace quire
