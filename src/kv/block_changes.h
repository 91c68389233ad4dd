// BlockChanges: the changes of block tables and block contents in one step. KvManager writes them
// into the plan, the executor applies them. Plain data; the vectors belong to the plan.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice {

// Entries [first_entry, first_entry + count) of a slot's block table in one group change to
// block_ids[first_id ...]. The executor's tables persist; plans carry only changes. Id 0 is the
// null block: never read, never written.
struct BlockTableUpdate {
  std::int32_t slot = 0;
  std::int32_t group = 0;
  std::int32_t first_entry = 0;
  std::int32_t count = 0;
  std::int32_t first_id = 0;
};

// Copy-on-write: the whole block `source` is copied to `target` before any row of the step runs.
// Within a step no block is the target of two copies, or both source and target, so copies may run
// in any order.
struct BlockCopy {
  std::int32_t source = 0;
  std::int32_t target = 0;
};

// Three vectors of a plan, to which KvManager appends its changes.
struct BlockChanges {
  std::vector<BlockTableUpdate>& updates;
  std::vector<std::int32_t>& block_ids;
  std::vector<BlockCopy>& copies;
};

}  // namespace sluice
