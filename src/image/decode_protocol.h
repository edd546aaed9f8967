// What quire and its decode process say to each other, over a socket that keeps packets whole. Both are built together,
// so packets are plain structs.
//
//   client                         decode process
//   DecodeRequest + file      ->
//                             <-   DecodeReply: the header, or an error (and the exchange is over)
//   for kDecode:
//   PixelBuffer + memory      ->   sized by the client for width x height x 3 bytes
//                             <-   DecodeReply: done, with warnings, or an error
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "image/picture_info.h"

namespace quire {

inline constexpr uint32_t kDecodeProtocol = 1;

enum class DecodeKind : uint32_t { kInspect = 1, kDecode = 2 };

struct DecodeRequest {
  uint32_t protocol = kDecodeProtocol;
  DecodeKind kind = DecodeKind::kInspect;
  int32_t page = 0;  // from 0
  int32_t cpu_seconds = 0;
  int64_t file_bytes = 0;
  int64_t max_pixels = 0;
  bool raw_color = false;
};

struct PixelBuffer {
  int64_t bytes = 0;
};

struct DecodeReply {
  int32_t error_kind = -1;  // -1: none, else an ErrorKind
  int32_t pages = 0;
  int32_t width_px = 0;
  int32_t height_px = 0;
  int32_t orientation = 0;
  char format[16] = {};
  char text[4096] = {};  // lines: what, where and hint of an error, or warnings
};

// One end of the socket. Not for use by several threads at once.
class DecodeChannel {
 public:
  DecodeChannel() = default;
  explicit DecodeChannel(UniqueFd socket) : socket_(std::move(socket)) {}
  int fd() const { return socket_.get(); }

  // False when the other end is gone.
  template <typename Message>
  bool Send(const Message& message, int attached_fd = -1) const {
    return SendBytes(&message, sizeof message, attached_fd);
  }
  // Waits at most timeout_ms (-1: for ever). False when the other end is gone, silent for that long, or sends a packet
  // of another size.
  template <typename Message>
  bool Receive(Message* message, UniqueFd* attached_fd, int timeout_ms = -1) const {
    return ReceiveBytes(message, sizeof *message, attached_fd, timeout_ms);
  }

 private:
  bool SendBytes(const void* data, size_t bytes, int attached_fd) const;
  bool ReceiveBytes(void* data, size_t bytes, UniqueFd* attached_fd, int timeout_ms) const;

  UniqueFd socket_;
};

// Lines in DecodeReply::text; what does not fit is left out.
void PutLines(const std::vector<std::string>& lines, DecodeReply* reply);
std::vector<std::string> GetLines(const DecodeReply& reply);

void PutError(const Error& error, DecodeReply* reply);
// Throws the error that the reply holds, if any.
void ThrowError(const DecodeReply& reply);

}  // namespace quire
