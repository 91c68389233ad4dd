// MoveQueue: the moves of a tier that has one thread for them. The thread runs one move at a time;
// loads go before saves that have not begun. Saves rest between each other (SavePace), loads do
// not. The end of each move comes out of poll().
// Owner: a tier. Threads: the engine's, as in KvTier; `run` is called on the queue's own thread.
// Units: the caller bounds how many moves wait (BlockPager).
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "offload/kv_tier.h"
#include "offload/save_pace.h"

namespace sluice {

struct QueuedMove {
  std::uint64_t id = 0;
  TierPage page;
  std::byte* target = nullptr;        // of a load; else null
  const std::byte* source = nullptr;  // of a save; else null
};

class MoveQueue {
 public:
  using Run = std::function<Status(const QueuedMove&)>;
  // `save_rests` and `clocks`: of SavePace; 0: saves do not rest. REQUIRES: the clocks, and what
  // `run` uses, outlive the queue.
  MoveQueue(Run run, int save_rests, const SavePace::Clocks& clocks = SavePace::real_clocks());
  // Ends the move that has begun; drops the others.
  ~MoveQueue();
  MoveQueue(const MoveQueue&) = delete;
  MoveQueue& operator=(const MoveQueue&) = delete;

  void add(const QueuedMove& move);
  // The functions of KvTier with these names. flush() waits for all moves, which no longer rest.
  void poll(std::vector<TierMove>& ended);
  void wait(Duration at_most);
  Status flush(Duration at_most);

 private:
  void run_all();

  const Run run_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable done_;
  // Guarded by mutex_.
  bool stopping_ = false;
  bool busy_ = false;
  std::deque<QueuedMove> loads_;
  std::deque<QueuedMove> saves_;
  SavePace pace_;
  std::vector<TierMove> ended_;

  std::thread thread_;  // last, because it uses all members
};

}  // namespace sluice
