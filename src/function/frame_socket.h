// FrameSocket: frames over a connected stream socket, without waiting. The owner polls: it receives
// when the socket is readable, and sends when frames are queued and the socket is writable.
// A frame may bring a descriptor. Only a socket of Descriptors::kTake accepts any; the kernel
// closes those that come to another one. Errors: kUnavailable for the system's, kInvalidArgument
// for a length beyond the limit. Threads: one owner.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace sluice {

class FrameSocket {
 public:
  enum class Descriptors : std::uint8_t { kRefuse, kTake };

  explicit FrameSocket(FileDescriptor socket, Descriptors descriptors = Descriptors::kRefuse)
      : socket_(std::move(socket)), descriptors_(descriptors) {}

  int fd() const { return socket_.get(); }

  // Adds a frame of encode_frame() to the queue. `descriptor`: crosses with it; the caller keeps it
  // open until the frame was sent.
  void queue(std::vector<std::byte> frame, int descriptor = -1) {
    queue_.push_back({std::move(frame), descriptor});
  }
  bool has_queued() const { return !queue_.empty(); }
  // Sends as much of the queue as the socket accepts.
  Status send();

  // Receives some of what has arrived. False: the peer has closed its end.
  Result<bool> receive();
  // The body of the next frame that has arrived whole.
  Result<std::optional<std::vector<std::byte>>> next();
  // The descriptor that came with a frame, once; none came: invalid.
  FileDescriptor take_descriptor() { return std::exchange(descriptor_, {}); }

 private:
  struct Queued {
    std::vector<std::byte> frame;
    int descriptor = -1;
  };

  ssize_t send_some(const Queued& queued) const;
  ssize_t receive_some(std::span<std::byte> bytes);

  FileDescriptor socket_;
  const Descriptors descriptors_;
  FileDescriptor descriptor_;
  std::deque<Queued> queue_;
  std::size_t sent_ = 0;  // bytes of the first frame of the queue
  std::vector<std::byte> received_;
};

}  // namespace sluice
