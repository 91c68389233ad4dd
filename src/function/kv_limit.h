// KvLimit: the KV limit of one function process, as the server knows it: what to tell the process
// next, how much KV memory the process may hold meanwhile, and whether it keeps to its limit.
//
// A process is told the next limit only after it has shown the last one, so a limit that it shows
// is never an earlier one of the same size. Until it shows a limit it may hold as much as the one
// before allowed. A process must be ended (late()) if it does not keep to a limit within
// `patience`, or if its own memory is above the limit and `beside` for that long.
// Owner: ProcessEngineLoop, under its lock. Pure. Units: bytes.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"

namespace sluice {

class KvLimit {
 public:
  struct Options {
    std::int64_t block_bytes = 0;  // 0: unknown; limits go at once, and nothing is checked
    std::int64_t first = 0;        // the limit of each new process; 0: all that it was made with
    std::int64_t beside = 0;       // the most own memory beside KV memory; 0: any
    Duration patience = std::chrono::seconds(5);
  };

  explicit KvLimit(Options options)
      : options_(options), wanted_(options.first), told_(options.first) {}

  // A new process starts.
  void start();
  // The process is gone, and its memory with it. The next one has the limit `first` until set() is
  // called again; without `first` it gets the limit of this one.
  void end();

  void set(std::int64_t bytes) { wanted_ = bytes; }
  std::int64_t wanted() const { return wanted_; }
  // The limit to tell the process now, if any. REQUIRES: the process is ready.
  std::optional<std::int64_t> next(TimePoint now);
  // Takes the process's own words: EngineGauges::kv_limit_blocks and kv_blocks_backed.
  void shown(std::int32_t limit_blocks, std::int32_t backed_blocks);
  // All memory of a ready process that it shares with no other one, as the system counts it.
  void note_own_memory(TimePoint now, std::int64_t bytes);

  // The process holds at most so much KV memory, if it keeps to its limits. It may come to hold
  // wanted() before the next call. 0 without `block_bytes`.
  std::int64_t held() const;
  // Why the process must be ended.
  std::optional<std::string> late(TimePoint now) const;

 private:
  bool checks() const { return options_.block_bytes > 0; }

  const Options options_;
  std::int64_t wanted_;
  std::int64_t told_;
  std::int64_t before_ = 0;  // the limit before `told_`, until the process has shown `told_`
  std::int64_t backed_ = 0;
  std::optional<TimePoint> told_at_;  // until the process keeps to `told_`
  std::optional<TimePoint> over_since_;
  bool seen_ = true;  // the process has shown `told_`
  bool alive_ = false;
};

}  // namespace sluice
