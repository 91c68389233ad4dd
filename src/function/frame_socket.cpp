#include "function/frame_socket.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <span>

#include "function/frames.h"

namespace sluice {
namespace {

constexpr std::size_t kReceiveBytes = std::size_t{256} << 10;
constexpr std::size_t kControlBytes = CMSG_SPACE(sizeof(int));

bool must_wait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

Error socket_error(const char* what) {
  return unavailable(
      fmt::format("cannot {} the function's socket: {}", what, std::strerror(errno)));
}

}  // namespace

// A descriptor crosses with the first byte of its frame.
ssize_t FrameSocket::send_some(const Queued& queued) const {
  iovec bytes{const_cast<std::byte*>(queued.frame.data()) + sent_, queued.frame.size() - sent_};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[kControlBytes] = {};
  if (queued.descriptor >= 0 && sent_ == 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &queued.descriptor, sizeof(int));
  }
  return sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

// Has room for one descriptor; the kernel closes what is beyond it.
ssize_t FrameSocket::receive_some(std::span<std::byte> bytes) {
  if (descriptors_ == Descriptors::kRefuse) {
    return recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  }
  iovec place{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &place;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[kControlBytes] = {};
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  const cmsghdr* const header = got < 0 ? nullptr : CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof(int));
    descriptor_ = FileDescriptor(descriptor);
  }
  return got;
}

Status FrameSocket::send() {
  while (!queue_.empty()) {
    const std::vector<std::byte>& frame = queue_.front().frame;
    const ssize_t sent = send_some(queue_.front());
    if (sent < 0) return must_wait() ? Status() : Status(socket_error("write to"));
    sent_ += static_cast<std::size_t>(sent);
    if (sent_ < frame.size()) continue;
    queue_.pop_front();
    sent_ = 0;
  }
  return {};
}

Result<bool> FrameSocket::receive() {
  const std::size_t before = received_.size();
  received_.resize(before + kReceiveBytes);
  const ssize_t got = receive_some(std::span(received_).subspan(before));
  received_.resize(before + static_cast<std::size_t>(got > 0 ? got : 0));
  if (got >= 0) return got > 0;
  if (must_wait()) return true;
  if (errno == ECONNRESET) return false;
  return socket_error("read from");
}

Result<std::optional<std::vector<std::byte>>> FrameSocket::next() {
  if (received_.size() < kFrameLengthBytes) return std::nullopt;
  ASSIGN_OR_RETURN(const std::size_t length,
                   frame_length(std::span(received_).first(kFrameLengthBytes)));
  if (received_.size() - kFrameLengthBytes < length) return std::nullopt;
  const auto begin = received_.begin() + static_cast<std::ptrdiff_t>(kFrameLengthBytes);
  const auto end = begin + static_cast<std::ptrdiff_t>(length);
  std::vector<std::byte> body(begin, end);
  received_.erase(received_.begin(), end);
  return body;
}

}  // namespace sluice
