// WeightPages: moves mapped weights into large pages while the model runs. A start maps weights as
// their files lie in the system's cache, in pages of 4 KiB, and costs nothing. Finding these pages
// costs each step time: most in a virtual machine, where each lookup is two. So the threads that
// compute also copy weights to large pages, which then take their place (LargePageMover): between
// steps for a small share of their time, and most of the time while there are none. The cached file
// can make room for other memory then.
//
// No thread of its own copies beside the steps: it would take a core from one of the threads that
// compute, and all others wait for that one.
//
// Weights stay where they are if the system has no large pages, or if not so much memory is free as
// the copies and the KV memory take. The log says so, with the reason.
//
// Owner: the model runner. Threads: the engine's thread, and the pool's in its calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/large_pages.h"
#include "base/thread_pool.h"

namespace sluice {

class WeightPages {
 public:
  // Weights of fewer bytes stay: large pages gain nothing for them.
  static constexpr std::size_t kLeastBytes = std::size_t{64} << 20;
  // Bytes that stay free.
  static constexpr std::int64_t kKeptFreeBytes = std::int64_t{512} << 20;
  // After steps, a move takes at most this part of their time: 3 %. Answers are slower by 3 to 5 %
  // until all weights have moved, because steps also find caches and threads cold. With two threads
  // a GiB takes 2 s of steps, or half a minute where a virtual machine gets its memory from the
  // host at first use.
  static constexpr int kStepsPerMove = 33;
  // A move after a long step takes no longer, because streams wait for it.
  static constexpr Duration kLongestMove = std::chrono::milliseconds(20);
  // A move while there are no steps: a request that arrives may wait so long.
  static constexpr Duration kIdleMove = std::chrono::milliseconds(4);

  struct Options {
    std::vector<std::span<const std::byte>> mappings;         // of files, private and read-only
    std::int64_t others = 0;                                  // bytes that KV memory may take later
    std::function<std::optional<std::int64_t>()> free_bytes;  // of memory, now
    std::size_t least_bytes = kLeastBytes;
  };

  // REQUIRES: pool and clock outlive this.
  WeightPages(Options options, ThreadPool& pool, const Clock& clock = real_clock());
  WeightPages(const WeightPages&) = delete;
  WeightPages& operator=(const WeightPages&) = delete;

  // Both move weights page by page (2 MiB) and begin no page after their time, so they take the
  // time of one page longer at most. The first call only looks whether weights can move. REQUIRES:
  // no other thread reads the mappings meanwhile; they are there until the end of this object, and
  // guarded against the truncation of their files.
  //
  // To be called after each step. The time since the last call counts as that of the step. A page
  // that took longer than allowed is made up for after the next steps.
  void advance_after_step();
  void advance_while_idle();

  // Whether there is nothing more to do.
  bool finished() const { return finished_; }
  std::size_t moved() const;  // bytes in large pages
  // Why the other ones have none. REQUIRES: finished().
  const std::string& why() const { return why_; }

 private:
  static const Clock& real_clock();
  bool start();
  void move_for(Duration time);
  void move_pages();
  // Why weights stay, or nothing.
  std::string obstacle() const;
  // Why `needed` bytes cannot be taken, or nothing.
  std::string shortage(std::int64_t needed) const;
  void finish();

  Options options_;
  ThreadPool& pool_;
  const Clock& clock_;
  std::size_t bytes_ = 0;  // of all mappings
  std::deque<LargePageMover> movers_;
  std::size_t checked_ = 0;  // bytes that had moved at the last check of the free memory
  TimePoint begin_{};
  TimePoint last_{};       // the end of the last move
  Duration allowance_{0};  // for moves after steps; negative: used beforehand
  bool started_ = false;
  bool finished_ = false;
  std::string why_;
};

}  // namespace sluice
