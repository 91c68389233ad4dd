// UrgentWork: counts short tasks that a client waits for and that are queued or running, such as
// writing a batch of tokens to the sockets or reading a request. Threads that compute for long
// check the count between two tasks and yield their core while it is above zero. Otherwise a woken
// thread may wait for the kernel's next tick while every core computes: 4 ms at 250 ticks a second,
// longer than a step of a small model. (After sched_yield() the kernel also ends the thread's time
// slice, so that the next thread to wake gets its core at once.)
//
// The count may lie in memory that other processes read, so that their threads yield too, and an
// UrgentWork may also look at such a count of another process.
// Owner: the command. Threads: any.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <utility>

namespace sluice {

class UrgentWork {
 public:
  using Count = std::atomic<std::int32_t>;

  UrgentWork() = default;
  // Counts in `shared`, or in itself if that is null. Work is also pending while `other` is above
  // zero; null: there is no other. REQUIRES: both outlive this and its marks.
  explicit UrgentWork(Count* shared, const Count* other = nullptr)
      : count_(shared != nullptr ? shared : &own_), other_(other) {}
  UrgentWork(const UrgentWork&) = delete;
  UrgentWork& operator=(const UrgentWork&) = delete;

  // Lives as long as one piece of urgent work: from the moment it is queued until it is done.
  class Mark {
   public:
    Mark() = default;
    explicit Mark(UrgentWork* work) : work_(work) {
      if (work_ != nullptr) work_->count_->fetch_add(1, std::memory_order_relaxed);
    }
    ~Mark() { end(); }
    Mark(Mark&& other) noexcept : work_(std::exchange(other.work_, nullptr)) {}
    Mark& operator=(Mark&& other) noexcept {
      if (this != &other) {
        end();
        work_ = std::exchange(other.work_, nullptr);
      }
      return *this;
    }

   private:
    void end() {
      if (work_ != nullptr) work_->count_->fetch_sub(1, std::memory_order_relaxed);
    }
    UrgentWork* work_ = nullptr;
  };

  bool pending() const {
    return count_->load(std::memory_order_relaxed) > 0 ||
           (other_ != nullptr && other_->load(std::memory_order_relaxed) > 0);
  }

 private:
  Count own_{0};
  Count* count_ = &own_;
  const Count* other_ = nullptr;
};

// YieldLimiter: tells a computing thread when to yield its core: when urgent work is pending and
// kInterval has passed since the last yield. So endless urgent work cannot starve the thread.
// Threads: any.
class YieldLimiter {
 public:
  static constexpr std::chrono::microseconds kInterval{500};

  // `work`: null = due() is always false.
  explicit YieldLimiter(const UrgentWork* work) : work_(work) {}

  // The caller must yield when it returns true.
  bool due() {
    if (work_ == nullptr || !work_->pending()) return false;
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    if (now < next_.load(std::memory_order_relaxed)) return false;
    next_.store(now + kInterval, std::memory_order_relaxed);
    return true;
  }

 private:
  const UrgentWork* work_;
  std::atomic<std::chrono::steady_clock::duration> next_{};
};

}  // namespace sluice
