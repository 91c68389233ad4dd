// Transfers: runs the transfers of plans on the device's transfer queue, beside compute. A plan
// names transfers, a TransferSource lists the copies of each, and poll() reports their ends in
// order of completion. Order rules: scheduler/batch_plan.h.
// Owner: the model runner. Threads: the engine's thread. Allocation: only when more transfers are
// outstanding than ever before.
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
  // Appends the transfer's copies. Their memory must stay valid, and their sources unchanged, until
  // the end of the transfer is reported. An error fails the transfer, not the engine.
  virtual Status list_copies(const PlanTransfer& transfer, std::vector<TransferCopy>& copies) = 0;
};

class Transfers {
 public:
  // The first marks of the transfer queue; the others are those of BlockStaging.
  static constexpr std::size_t kMarks = Device::kMarks / 2;

  // REQUIRES: both outlive this, and nothing else uses these marks.
  Transfers(Device& device, TransferSource& source) : device_(&device), source_(&source) {}

  // Starts a transfer that waits for all work submitted to the compute queue before its mark
  // `after`. kNoMark: it waits for nothing, because no step has run yet.
  static constexpr std::size_t kNoMark = Device::kMarks;
  Status start(const PlanTransfer& transfer, std::size_t after);

  // Appends the transfers that ended since the last call. Never waits; if the device has no copy
  // engine, it moves bounded slices.
  Status poll(std::vector<TransferResult>& completed);
  // Returns when a transfer has ended that poll() has not reported, or after `at_most`.
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
  std::deque<Started> started_;       // oldest first; at most kMarks
  std::deque<PlanTransfer> waiting_;  // for a free mark
  std::vector<TransferResult> ended_;
  std::vector<TransferCopy> copies_;  // of the transfer that is being submitted
  std::size_t next_mark_ = 0;
};

}  // namespace sluice
