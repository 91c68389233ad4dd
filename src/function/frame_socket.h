// FrameSocket: frames over a connected stream socket, without waiting. The owner polls: it receives
// when the socket is readable, and sends when frames are queued and the socket is writable.
// Errors: kUnavailable for the system's, kInvalidArgument for a length beyond the limit.
// Threads: one owner.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace sluice {

class FrameSocket {
 public:
  explicit FrameSocket(FileDescriptor socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }

  // Adds a frame of encode_frame() to the queue.
  void queue(std::vector<std::byte> frame) { queue_.push_back(std::move(frame)); }
  bool has_queued() const { return !queue_.empty(); }
  // Sends as much of the queue as the socket accepts.
  Status send();

  // Receives some of what has arrived. False: the peer has closed its end.
  Result<bool> receive();
  // The body of the next frame that has arrived whole.
  Result<std::optional<std::vector<std::byte>>> next();

 private:
  FileDescriptor socket_;
  std::deque<std::vector<std::byte>> queue_;
  std::size_t sent_ = 0;  // bytes of the first frame of the queue
  std::vector<std::byte> received_;
};

}  // namespace sluice
