// Bytes on a Unix socket, with a descriptor beside them. Neither call waits, and none raises
// SIGPIPE; a count below 0 leaves the cause in errno.
// Any thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>

#include "base/file.h"

namespace sluice {

// `descriptor` crosses with the first byte; -1: none. Returns the number of bytes that were sent.
ssize_t send_with_descriptor(int socket, std::span<const std::byte> bytes, int descriptor);

struct ReceivedBytes {
  ssize_t count = 0;
  bool is_cut = false;        // the message was longer than the bytes
  FileDescriptor descriptor;  // not valid: none came
};
// Has room for one descriptor; the kernel closes what is beyond it.
ReceivedBytes receive_with_descriptor(int socket, std::span<std::byte> bytes);

}  // namespace sluice
