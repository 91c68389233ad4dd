// StreamLane: the sequences whose KV is streamed, because it does not fit into memory
// (kv/stream_shape.h). Policies do not see them: one of them runs, in steps of its own, and the
// others wait in order of arrival.
//
// - A streamed step is due when the others have had a step and as much time as the last streamed
//   step took, or when they have nothing to run. So others get at least half of the time.
// - The first one in the lane is admitted when no sequence that comes before it (by priority and
//   arrival) waits outside of the lane. Until it has its blocks and a slot, none that comes after
//   it is admitted, so its wait has an end.
// - With an adapter it also waits until that is in device memory, and others go on meanwhile. When
//   another adapter needs the place, it gives its windows back as soon as it has completed a piece.
// - It takes the blocks of its windows once and never needs another. When the only other running
//   sequence lacks blocks, or the KV limit falls, it gives its windows back, and waits in front. It
//   loses the tokens of its last piece only.
//
// Part of SchedulerState. Plain data; the engine's thread.
#pragma once

#include <cstdint>
#include <deque>

#include "base/clock.h"
#include "kv/stream_shape.h"
#include "scheduler/waiting_queue.h"

namespace sluice {

struct StreamLane {
  StreamShape shape;  // max_blocks 0: there is no lane
  std::deque<WaitingEntry> waiting;
  std::int32_t slot = -1;   // of the one that runs
  TimePoint due;            // of its next step, while others run
  bool others_ran = false;  // since its last step

  bool empty() const { return slot < 0 && waiting.empty(); }
};

}  // namespace sluice
