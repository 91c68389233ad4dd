// SavePace: when the threads of a tier may begin the next save. The steps beside them need the same
// cores, so saves that no client waits for run one at a time, and rest for a multiple of their CPU
// time. A rest costs as much as a small save or two, because the thread and its caches have to come
// back; so it follows when the saves since the last one took kTurn. Urgent saves, and those that
// wait with them, do not rest.
//
//   pace.wait(news, lock, other_work, num_waiting);
//   if (pace.may_begin(num_waiting())) { auto save = pace.begin(left); ...; pace.end(save); }
//
// Owner: a tier. Threads: any, under the owner's lock; end() is called by the thread of begin().
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>

#include "base/clock.h"
#include "base/work_pace.h"

namespace sluice {

class SavePace {
 public:
  // Short beside a step that computes a prompt, and long beside a rest.
  static constexpr Duration kTurn = std::chrono::microseconds(250);

  struct Save {
    bool rests = false;
    TimePoint begun;  // by Clocks::cpu
  };

  struct Clocks {
    const Clock& cpu;   // the CPU time of the calling thread
    const Clock& time;  // of rests
  };
  static Clocks real_clocks() {
    static const ThreadCpuClock cpu;
    static const SystemClock time;
    return {cpu, time};
  }

  // `rests`: a rest takes so many times the CPU time of the turn before it. 0: no rests, and any
  // number of saves at a time. REQUIRES: the clocks outlive this.
  SavePace(int rests, const Clocks& clocks) : rests_(rests), clocks_(clocks) {}

  // Saves do not rest until none waits. False: that was so already. The owner tells all threads.
  bool hurry() {
    const bool news = !hurrying_;
    hurrying_ = true;
    return news;
  }

  bool may_begin(std::size_t waiting) const {
    if (waiting == 0) return false;
    return hurrying_ || rests_ == 0 || (!under_way_ && clocks_.time.now() >= rest_until_);
  }
  // Whether one more save needs a thread to be woken: a thread that rests, or that saves, looks for
  // the next one itself.
  bool wakes(std::size_t waiting) const {
    return may_begin(waiting) || (waiting == 1 && !under_way_);
  }
  // `left`: the saves that still wait.
  Save begin(std::size_t left) {
    const Save save{!hurrying_ && rests_ > 0, clocks_.cpu.now()};
    under_way_ |= save.rests;
    if (left == 0) hurrying_ = false;
    return save;
  }
  void end(const Save& save) {
    if (!save.rests) return;
    under_way_ = false;
    turn_ += clocks_.cpu.now() - save.begun;
    if (turn_ < kTurn) return;
    rest_until_ = clocks_.time.now() + turn_ * rests_;
    turn_ = Duration{0};
  }

  // The time until the next save may begin. Nothing: only news can say, because no save waits, or
  // the thread of the save under way looks for the next one itself.
  std::optional<Duration> until_next(std::size_t waiting) const {
    if (may_begin(waiting)) return Duration{0};
    if (waiting == 0 || under_way_) return std::nullopt;
    return rest_until_ - clocks_.time.now();
  }

  // Returns when there is other work, or a save may begin.
  template <class OtherWork, class Waiting>
  void wait(std::condition_variable& news, std::unique_lock<std::mutex>& lock, OtherWork other_work,
            Waiting waiting) const {
    while (!other_work()) {
      const std::optional<Duration> time = until_next(waiting());
      if (!time) {
        news.wait(lock);
      } else if (*time > Duration{0}) {
        news.wait_for(lock, *time);
      } else {
        return;
      }
    }
  }

 private:
  const int rests_;
  const Clocks clocks_;
  bool hurrying_ = false;
  bool under_way_ = false;  // a save that rests afterwards
  Duration turn_{0};        // CPU time of such saves since the last rest
  TimePoint rest_until_;
};

}  // namespace sluice
