// WeightPages: moves mapped weights into large pages, beside the steps that read them. A start maps
// weights as their files lie in the system's cache, in pages of 4 KiB, and costs nothing. Finding
// these pages costs each step time: most in a virtual machine, whose tables have two levels. So a
// thread of low priority gives them large pages afterwards (LargePageMover). Mostly that is a copy;
// the cached file can make room for other memory then.
//
// Weights stay where they are if the system has no large pages, or if not so much memory is free as
// the copies and the KV memory take. The log says so, with the reason.
//
// Owner: the model runner. Threads: the engine's thread, and its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace sluice {

class WeightPages {
 public:
  // Weights of fewer bytes stay: large pages gain nothing for them.
  static constexpr std::size_t kLeastBytes = std::size_t{64} << 20;
  // Bytes that stay free.
  static constexpr std::int64_t kKeptFreeBytes = std::int64_t{512} << 20;

  struct Options {
    std::vector<std::span<const std::byte>> mappings;  // of files, private and read-only
    std::int64_t others = 0;                           // bytes that KV memory may take later
    // Bytes of memory that are free now; on the mover's thread.
    std::function<std::optional<std::int64_t>()> free_bytes;
    std::size_t least_bytes = kLeastBytes;
  };

  explicit WeightPages(Options options);
  ~WeightPages();
  WeightPages(const WeightPages&) = delete;
  WeightPages& operator=(const WeightPages&) = delete;

  // Begins, once. REQUIRES: the mappings are there until the end of this object, and guarded
  // against the truncation of their files.
  void start();
  struct Outcome {
    std::size_t moved = 0;   // bytes that have large pages
    std::size_t copied = 0;  // of those: in memory of this process
    std::string why;         // the others have none; empty: they are fewer than a large page holds
  };
  // Returns when nothing will be moved any more.
  const Outcome& wait();

 private:
  void move_all();
  // Why weights stay, or nothing.
  std::string obstacle() const;
  // Why `needed` bytes cannot be taken, or nothing.
  std::string shortage(std::int64_t needed) const;
  void log_outcome(double seconds) const;

  Options options_;
  std::size_t bytes_ = 0;  // of all mappings
  Outcome outcome_;        // of the mover's thread, until it has ended
  std::atomic<bool> stop_{false};
  bool started_ = false;
  std::thread mover_;
};

}  // namespace sluice
