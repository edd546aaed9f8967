#include "image/decode_protocol.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace quire {
namespace {

// Room for one descriptor beside a packet.
union Control {
  char bytes[CMSG_SPACE(sizeof(int))];
  cmsghdr aligned;
};

}  // namespace

bool DecodeChannel::SendBytes(const void* data, size_t bytes, int attached_fd) const {
  iovec part{const_cast<void*>(data), bytes};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  Control control{};
  if (attached_fd >= 0) {
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &attached_fd, sizeof(int));
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(bytes);
}

bool DecodeChannel::ReceiveBytes(void* data, size_t bytes, UniqueFd* attached_fd, int timeout_ms) const {
  pollfd waiting{socket_.get(), POLLIN, 0};
  int ready;
  do {
    ready = poll(&waiting, 1, timeout_ms);
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) return false;

  iovec part{data, bytes};
  msghdr message{};
  Control control{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  ssize_t received;
  do {
    received = recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) return false;
  UniqueFd attached;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    int fd;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    attached = UniqueFd(fd);
  }
  if (attached_fd != nullptr) *attached_fd = std::move(attached);
  return received == static_cast<ssize_t>(bytes) && (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
}

void PutLines(const std::vector<std::string>& lines, DecodeReply* reply) {
  std::string text;
  for (std::string line : lines) {
    std::replace(line.begin(), line.end(), '\n', ' ');
    text += line + '\n';
  }
  text.resize(std::min(text.size(), sizeof reply->text - 1));
  std::memcpy(reply->text, text.c_str(), text.size() + 1);
}

std::vector<std::string> GetLines(const DecodeReply& reply) {
  std::string_view text(reply.text, strnlen(reply.text, sizeof reply.text));
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

void PutError(const Error& error, DecodeReply* reply) {
  reply->error_kind = static_cast<int32_t>(error.kind());
  PutLines({error.message(), error.where(), error.hint()}, reply);
}

void ThrowError(const DecodeReply& reply) {
  if (reply.error_kind < 0) return;
  std::vector<std::string> lines = GetLines(reply);
  lines.resize(3);
  const bool known = reply.error_kind <= static_cast<int32_t>(ErrorKind::kInternal);
  throw Error(known ? static_cast<ErrorKind>(reply.error_kind) : ErrorKind::kInternal, lines[0], lines[1], lines[2]);
}

}  // namespace quire
