// PageReads: the page reads that one thread has under way at once, each with memory for a page and
// the caller's data. Threads: one object, one thread. Allocation: none after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "offload/aligned_buffer.h"
#include "offload/page_format.h"
#include "offload/read_queue.h"

namespace sluice {

template <class Data>
class PageReads {
 public:
  struct Ended {
    Data data;
    std::span<const std::byte> page;  // until the next begin()
    int error = 0;                    // errno; 0: the page is there
  };

  PageReads(std::unique_ptr<ReadQueue> queue, std::uint64_t page_bytes)
      : page_bytes_(static_cast<std::size_t>(page_bytes)), queue_(std::move(queue)) {
    reads_.resize(static_cast<std::size_t>(queue_->depth()));
    for (std::size_t i = reads_.size(); i-- > 0;) {
      reads_[i].memory = make_aligned_buffer(page_bytes_, kDiskAlignment);
      free_.push_back(static_cast<int>(i));
    }
  }

  int under_way() const { return static_cast<int>(reads_.size() - free_.size()); }
  bool is_full() const { return free_.empty(); }

  // REQUIRES: !is_full().
  void begin(Data data, int fd, std::uint64_t offset) {
    const int tag = free_.back();
    free_.pop_back();
    Read& read = reads_[static_cast<std::size_t>(tag)];
    read.data = std::move(data);
    queue_->begin(tag, fd, {read.memory.get(), page_bytes_}, offset);
  }
  // REQUIRES: under_way() > 0.
  Ended wait() {
    const ReadQueue::End end = queue_->wait();
    free_.push_back(end.tag);
    Read& read = reads_[static_cast<std::size_t>(end.tag)];
    return {std::move(read.data), {read.memory.get(), page_bytes_}, end.error};
  }

 private:
  struct Read {
    AlignedBuffer memory;
    Data data;
  };

  const std::size_t page_bytes_;
  std::vector<Read> reads_;           // by tag
  std::vector<int> free_;             // tags
  std::unique_ptr<ReadQueue> queue_;  // ends before its memory
};

}  // namespace sluice
