// io_uring by its system calls: three of them and two rings in shared memory (io_uring(7)).
#include <fmt/format.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "offload/read_queue.h"

namespace sluice {
namespace {

// Memory that the kernel shares.
class Mapping {
 public:
  Mapping() = default;
  Mapping(int fd, std::size_t bytes, off_t what)
      : bytes_(bytes),
        data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, what)) {
  }
  Mapping(Mapping&& other) noexcept
      : bytes_(other.bytes_), data_(std::exchange(other.data_, MAP_FAILED)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~Mapping() {
    if (valid()) ::munmap(data_, bytes_);
  }
  bool valid() const { return data_ != MAP_FAILED; }
  template <class T>
  T* at(std::size_t offset) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(data_) + offset);
  }

 private:
  std::size_t bytes_ = 0;
  void* data_ = MAP_FAILED;
};

class UringQueue final : public ReadQueue {
 public:
  UringQueue(const FileIo& io, int depth)
      : io_(io), depth_(depth), reads_(static_cast<std::size_t>(depth)) {
    done_.reserve(reads_.size());
  }
  ~UringQueue() override {
    while (submitted_ > 0) static_cast<void>(wait_for_kernel());
  }

  Status open() {
    io_uring_params params{};
    ring_ = FileDescriptor(
        static_cast<int>(::syscall(SYS_io_uring_setup, static_cast<unsigned>(depth_), &params)));
    if (!ring_.valid()) return unavailable_here("io_uring_setup");
    const std::size_t submissions = params.sq_off.array + params.sq_entries * sizeof(unsigned);
    const std::size_t completions = params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe);
    submission_ring_ = Mapping(ring_.get(), submissions, IORING_OFF_SQ_RING);
    completion_ring_ = Mapping(ring_.get(), completions, IORING_OFF_CQ_RING);
    entries_ = Mapping(ring_.get(), params.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES);
    if (!submission_ring_.valid() || !completion_ring_.valid() || !entries_.valid()) {
      return unavailable_here("mmap of its rings");
    }
    offsets_ = params;
    return {};
  }

  int depth() const override { return depth_; }

  void begin(int tag, int fd, std::span<std::byte> bytes, std::uint64_t offset) override {
    CHECK(tag >= 0 && tag < depth_ && submitted_ + static_cast<int>(done_.size()) < depth_);
    reads_[static_cast<std::size_t>(tag)] = {fd, bytes, offset};
    if (!io_.admit_read(fd, offset)) {
      done_.push_back({tag, errno});
    } else if (submit(tag)) {
      ++submitted_;
    } else {
      // The kernel has no room for it now.
      done_.push_back({tag, read_at(fd, bytes, offset) ? 0 : errno});
    }
  }

  End wait() override {
    if (!done_.empty()) {
      const End end = done_.back();
      done_.pop_back();
      return end;
    }
    CHECK(submitted_ > 0);
    const auto [tag, result] = wait_for_kernel();
    Read& read = reads_[static_cast<std::size_t>(tag)];
    if (result < 0 && result != -EAGAIN && result != -EINTR) return {tag, -result};
    // A signal or the end of an extent may cut a read short.
    const auto count = static_cast<std::size_t>(result < 0 ? 0 : result);
    CHECK(count <= read.bytes.size());
    const auto rest = read.bytes.subspan(count);
    return {tag, read_at(read.fd, rest, read.offset + count) ? 0 : errno};
  }

 private:
  struct Read {
    int fd = -1;
    std::span<std::byte> bytes;
    std::uint64_t offset = 0;
  };
  struct Completion {
    int tag = 0;
    int result = 0;
  };

  static Error unavailable_here(const char* what) {
    return unsupported(fmt::format("{}: {}", what, std::strerror(errno)));
  }

  // The kernel reads and writes the other ends of the rings.
  static std::atomic_ref<unsigned> shared(const Mapping& ring, unsigned offset) {
    return std::atomic_ref<unsigned>(*ring.at<unsigned>(offset));
  }

  bool submit(int tag) {
    const Read& read = reads_[static_cast<std::size_t>(tag)];
    const auto tail_at = shared(submission_ring_, offsets_.sq_off.tail);
    const unsigned tail = tail_at.load(std::memory_order_relaxed);
    const unsigned slot = tail & *submission_ring_.at<unsigned>(offsets_.sq_off.ring_mask);
    io_uring_sqe& entry = entries_.at<io_uring_sqe>(0)[slot];
    entry = {};
    entry.opcode = IORING_OP_READ;
    entry.fd = read.fd;
    entry.addr = reinterpret_cast<std::uintptr_t>(read.bytes.data());
    entry.len = static_cast<unsigned>(read.bytes.size());
    entry.off = read.offset;
    entry.user_data = static_cast<std::uint64_t>(tag);
    submission_ring_.at<unsigned>(offsets_.sq_off.array)[slot] = slot;
    tail_at.store(tail + 1, std::memory_order_release);
    for (;;) {
      const auto taken = ::syscall(SYS_io_uring_enter, ring_.get(), 1U, 0U, 0U, nullptr, 0U);
      if (taken == 1) return true;
      if (taken < 0 && errno == EINTR) continue;
      // Not taken: without SQPOLL the kernel looks at the ring only in this call.
      tail_at.store(tail, std::memory_order_release);
      return false;
    }
  }

  Completion wait_for_kernel() {
    const auto head_at = shared(completion_ring_, offsets_.cq_off.head);
    const unsigned head = head_at.load(std::memory_order_relaxed);
    while (shared(completion_ring_, offsets_.cq_off.tail).load(std::memory_order_acquire) == head) {
      const auto entered = ::syscall(SYS_io_uring_enter, ring_.get(), 0U, 1U,
                                     static_cast<unsigned>(IORING_ENTER_GETEVENTS), nullptr, 0U);
      CHECK(entered >= 0 || errno == EINTR || errno == EAGAIN || errno == EBUSY);
    }
    const unsigned slot = head & *completion_ring_.at<unsigned>(offsets_.cq_off.ring_mask);
    const io_uring_cqe& entry = completion_ring_.at<io_uring_cqe>(offsets_.cq_off.cqes)[slot];
    const Completion completion{static_cast<int>(entry.user_data), entry.res};
    head_at.store(head + 1, std::memory_order_release);
    --submitted_;
    return completion;
  }

  const FileIo& io_;
  const int depth_;
  FileDescriptor ring_;
  Mapping submission_ring_;
  Mapping completion_ring_;
  Mapping entries_;
  io_uring_params offsets_{};
  std::vector<Read> reads_;  // by tag
  std::vector<End> done_;    // without the kernel
  int submitted_ = 0;
};

}  // namespace

Result<std::unique_ptr<ReadQueue>> make_uring_queue(const FileIo& io, int depth) {
  CHECK(depth >= 1);
  auto queue = std::make_unique<UringQueue>(io, depth);
  RETURN_IF_ERROR(queue->open());
  return std::unique_ptr<ReadQueue>(std::move(queue));
}

}  // namespace sluice
