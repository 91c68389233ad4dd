// Transfers: the executor's bytes that move beside compute, on the device's transfer queue. A plan
// names transfers; a TransferSource says which copies one consists of; their ends come back in
// order of completion. Order rules: scheduler/batch_plan.h.
// Owner: the model runner. Threads: the engine's thread. Each transfer that may be outstanding at
// once takes a place in reserved lists; beyond the most there ever were, nothing allocates.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "device/device.h"
#include "scheduler/transfer.h"

namespace sluice {

struct TransferCopy {
  CopyKind kind = CopyKind::kHostToDevice;
  std::byte* target = nullptr;
  const std::byte* source = nullptr;
  std::size_t bytes = 0;
};

class TransferSource {
 public:
  virtual ~TransferSource() = default;
  // Appends the transfer's copies. The memory they name stays valid, and what they read unchanged,
  // until the transfer is reported. An error fails the transfer, not the engine.
  virtual Status list_copies(const PlanTransfer& transfer, std::vector<TransferCopy>& copies) = 0;
};

class Transfers {
 public:
  // REQUIRES: both outlive it, and nothing else uses the marks of the transfer queue.
  Transfers(Device& device, TransferSource& source) : device_(&device), source_(&source) {}

  // Starts a transfer behind everything that the compute queue had before its mark `after`; nothing
  // when no step has run yet (kNoMark).
  static constexpr std::size_t kNoMark = Device::kMarks;
  Status start(const PlanTransfer& transfer, std::size_t after);

  // Appends what ended since the last call. Never waits; where the device has no copy engine it
  // moves at most one bounded slice.
  Status poll(std::vector<TransferResult>& completed);
  // Returns when a transfer has ended that poll() has not reported, or the time is over.
  Status wait(Duration at_most);

  bool idle() const { return started_.empty() && waiting_.empty() && ended_.empty(); }

 private:
  struct Started {
    TransferId id = 0;
    std::size_t mark = 0;
  };

  Status submit(const PlanTransfer& transfer);
  // Notes what has ended and starts what waited for a mark.
  Status advance();

  Device* device_;
  TransferSource* source_;
  std::deque<Started> started_;       // oldest first; at most Device::kMarks
  std::deque<PlanTransfer> waiting_;  // for a free mark
  std::vector<TransferResult> ended_;
  std::vector<TransferCopy> copies_;  // of the transfer that is being submitted
  std::size_t next_mark_ = 0;
};

}  // namespace sluice
