// ResourceView: the state outside the scheduler that plan() reads. The caller of plan() fills it
// from the executor before each plan. Because it is plain data, the engine, the simulator and tests
// can replay it. The scheduler never calls the executor.
// Owner: the caller of plan(); spans stay valid during that call. Any thread.
#pragma once

#include <cstdint>
#include <span>

#include "kv/paged_block.h"
#include "scheduler/transfer.h"

namespace sluice {

struct ResourceView {
  // Transfers that ended since the last plan, in order of completion. Each is reported once.
  std::span<const TransferResult> completed;
  // KV blocks that are backed now, the null block included. 0: KV memory is fixed at
  // KvOptions::num_blocks.
  std::int32_t kv_backed_blocks = 0;
  // The system refused the memory that the last growth asked for. Stays true until the scheduler
  // asks again.
  bool kv_growth_failed = false;
  // The most KV blocks that this engine may use now, the null block included; lower than
  // KvOptions::max_blocks when memory is lent to others. 0: no such limit.
  std::int32_t kv_limit_blocks = 0;
  // Pages whose blocks the tier below has dropped since the last plan, to make room. The
  // transfers in `completed` ended before that.
  std::span<const PagedBlock> lost_pages = {};
  // Where the tier below has blocks from now on, in the order of the changes since the last plan.
  std::span<const PageLevel> page_levels = {};
  // The tier below takes blocks to save now.
  bool tier_accepts_saves = false;
};

}  // namespace sluice
