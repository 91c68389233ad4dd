// WeightPages: moves mapped weights into large pages while the model runs. A start maps weights as
// their files lie in the system's cache, in pages of 4 KiB, and costs nothing. Finding these pages
// costs each step time: most in a virtual machine, where each lookup is two. So a thread
// of low priority copies weights to large pages, and between two steps the engine's thread puts
// copies in their place (LargePageMover). The cached file can make room for other memory then.
//
// Weights stay where they are if the system has no large pages, or if not so much memory is free as
// the copies and the KV memory take. The log says so, with the reason.
//
// Owner: the model runner. Threads: the engine's thread, and its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/large_pages.h"

namespace sluice {

class WeightPages {
 public:
  // Weights of fewer bytes stay: large pages gain nothing for them.
  static constexpr std::size_t kLeastBytes = std::size_t{64} << 20;
  // Bytes that stay free.
  static constexpr std::int64_t kKeptFreeBytes = std::int64_t{512} << 20;
  // Copies without a place yet, and a piece of 8 MiB: memory beyond that of the weights.
  static constexpr std::size_t kAheadBytes = std::size_t{56} << 20;
  // Copies that take their places between two steps: this many take a millisecond, and so many are
  // placed after a step of at most kStepPerRound. Longer steps are followed by more.
  static constexpr std::size_t kRoundBytes = std::size_t{16} << 20;
  static constexpr Duration kStepPerRound = std::chrono::milliseconds(32);

  struct Options {
    std::vector<std::span<const std::byte>> mappings;  // of files, private and read-only
    std::int64_t others = 0;                           // bytes that KV memory may take later
    // Bytes of memory that are free now; on the copying thread.
    std::function<std::optional<std::int64_t>()> free_bytes;
    std::size_t least_bytes = kLeastBytes;
  };

  explicit WeightPages(Options options);
  ~WeightPages();
  WeightPages(const WeightPages&) = delete;
  WeightPages& operator=(const WeightPages&) = delete;

  // Begins to copy at the first call; puts at most `most` copied bytes in their places at each, or
  // bytes_after(the time since the last call). REQUIRES: no thread reads the mappings meanwhile;
  // they are there until the end of this object, and guarded against the truncation of their files.
  void advance();
  void advance(std::size_t most);
  static std::size_t bytes_after(Duration step);
  // Whether there is nothing more to do.
  bool finished() const { return finished_; }

  std::size_t copied() const;  // bytes, with those that were placed
  std::size_t placed() const;  // bytes in large pages
  // Why the other ones have none. REQUIRES: finished().
  const std::string& why() const { return why_; }

 private:
  void start();
  void copy_all();
  // Why weights stay, or nothing.
  std::string obstacle() const;
  // Why `needed` bytes cannot be taken, or nothing.
  std::string shortage(std::int64_t needed) const;
  void finish();

  Options options_;
  std::size_t bytes_ = 0;  // of all mappings
  std::deque<LargePageMover> movers_;
  TimePoint begin_{};
  TimePoint last_{};  // advance() was called
  bool started_ = false;
  bool finished_ = false;
  std::string why_;  // of the copying thread, until it has ended
  std::atomic<bool> stop_{false};
  std::atomic<bool> copying_ended_{false};  // the thread has nothing more to do
  std::thread thread_;
};

}  // namespace sluice
