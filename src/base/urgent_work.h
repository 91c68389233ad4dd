// UrgentWork: counts short work that a client waits for and that has no core yet or has not ended:
// a batch of tokens on its way to the sockets, a request to be read. Threads that compute for long
// look here between two pieces of work and give way. Without that, a thread that wakes while every
// core computes may wait for the kernel's next tick: 4 ms where it has 250 a second, longer than a
// whole step of a small model. (After sched_yield() the kernel also counts the rest of a thread's
// slice as used, so that the next thread to wake takes its core at once.)
// Owner: the command. Threads: any.
#pragma once

#include <atomic>
#include <chrono>
#include <utility>

namespace sluice {

class UrgentWork {
 public:
  // One piece of urgent work, from when it is queued until it is done.
  class Mark {
   public:
    Mark() = default;
    explicit Mark(UrgentWork* work) : work_(work) {
      if (work_ != nullptr) work_->pending_.fetch_add(1, std::memory_order_relaxed);
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
      if (work_ != nullptr) work_->pending_.fetch_sub(1, std::memory_order_relaxed);
    }
    UrgentWork* work_ = nullptr;
  };

  bool pending() const { return pending_.load(std::memory_order_relaxed) > 0; }

 private:
  std::atomic<int> pending_{0};
};

// When a computing thread should give up its core: urgent work is pending, and it computed for
// kInterval since it last did, so that urgent work without end cannot starve it.
// Threads: any.
class GiveWay {
 public:
  static constexpr std::chrono::microseconds kInterval{500};

  // `work`: null = never.
  explicit GiveWay(const UrgentWork* work) : work_(work) {}

  // The caller yields when it is true.
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
