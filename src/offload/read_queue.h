// ReadQueue: reads of files that one thread has under way at once. With io_uring the kernel works
// on all of them; without it each read is done when it begins, so that one is under way at a time.
//
// Threads: one object, one thread. Allocation: none after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "offload/file_io.h"

namespace sluice {

class ReadQueue {
 public:
  struct End {
    int tag = 0;
    int error = 0;  // errno; 0: all bytes are there. EIO: the file is too short
  };

  // The destructor waits for reads under way, whose memory is in use until then.
  virtual ~ReadQueue() = default;

  virtual int depth() const = 0;  // reads that may be under way
  // Starts a read of all bytes. `tag` comes back with the end. REQUIRES: fewer than depth() reads
  // are under way, none of them with this tag; 0 <= tag < depth().
  virtual void begin(int tag, int fd, std::span<std::byte> bytes, std::uint64_t offset) = 0;
  // Waits for the next end of a read. REQUIRES: a read is under way.
  virtual End wait() = 0;
};

// REQUIRES: `io` outlives the queue.
std::unique_ptr<ReadQueue> make_plain_queue(const FileIo& io);
// Errors: kUnsupported, with the system's reason; containers often forbid io_uring. REQUIRES: `io`
// outlives the queue, depth >= 1.
Result<std::unique_ptr<ReadQueue>> make_uring_queue(const FileIo& io, int depth);

// A queue for pages of a folder: with io_uring if `uring` and if it is there, with up to 8 reads
// and 16 MiB at once; otherwise a plain queue. The log names the folder and why there is no
// io_uring.
std::unique_ptr<ReadQueue> make_read_queue(const FileIo& io, bool uring, std::uint64_t page_bytes,
                                           std::string_view folder);

}  // namespace sluice
