#include "function/frame_socket.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/descriptor_message.h"
#include "function/frames.h"

namespace sluice {
namespace {

constexpr std::size_t kReceiveBytes = std::size_t{256} << 10;

bool must_wait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

Error socket_error(const char* what) {
  return unavailable(
      fmt::format("cannot {} the function's socket: {}", what, std::strerror(errno)));
}

}  // namespace

// A descriptor crosses with the first byte of its frame.
ssize_t FrameSocket::send_some(const Queued& queued) const {
  return send_with_descriptor(socket_.get(), std::span(queued.frame).subspan(sent_),
                              sent_ == 0 ? queued.descriptor : -1);
}

ssize_t FrameSocket::receive_some(std::span<std::byte> bytes) {
  if (descriptors_ == Descriptors::kRefuse) {
    return recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  }
  ReceivedBytes received = receive_with_descriptor(socket_.get(), bytes);
  if (received.descriptor.valid()) descriptor_ = std::move(received.descriptor);
  return received.count;
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
