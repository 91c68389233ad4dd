// Transfers: bytes that move beside compute, such as an adapter's weights into a slot of the
// adapters region. The scheduler names them in a plan, the executor starts them, and their
// completions come back to the scheduler as data (ResourceView). Order rules: batch_plan.h.
// Plain data; any thread.
#pragma once

#include <cstdint>

namespace sluice {

// Ids ascend in plan order and are never reused.
using TransferId = std::uint64_t;

enum class TransferKind : std::uint8_t {
  kLoadAdapter,  // `resource` is the adapter's index, `place` the adapter slot that it fills
  // A KV block from or to its page in the tier below; `resource` is its index in BatchPlan::pages.
  kLoadBlock,
  kSaveBlock,
  // A KV block from or to the file of BatchPlan::stream_file; `resource` as above. `place` is
  // unused.
  kReadStream,
  kWriteStream,
};

inline bool moves_stream(TransferKind kind) {
  return kind == TransferKind::kReadStream || kind == TransferKind::kWriteStream;
}

struct PlanTransfer {
  TransferId id = 0;
  TransferKind kind = TransferKind::kLoadAdapter;
  std::int32_t resource = 0;
  std::int32_t place = 0;
};

struct TransferResult {
  TransferId id = 0;
  // The cause is external (a file, a device). The contents of the target are undefined; the
  // scheduler decides what happens next.
  bool failed = false;
  // With `failed`, of a kLoadBlock: the page does not hold the block. Else a later load may
  // succeed.
  bool damaged = false;
};

}  // namespace sluice
