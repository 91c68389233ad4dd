// PageTransfers: runs the transfers of plans that move KV blocks to and from a tier, beside
// compute. The tier reads and writes the blocks where they are, so the device's memory must be the
// host's. A block that fails to load is computed again by the scheduler. It is erased from the tier
// only if its page does not hold it: an error of the disk may pass.
// Owner: the model runner. Threads: the engine's thread; the tier may have its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "kv/kv_layout.h"
#include "kv/paged_block.h"
#include "offload/kv_tier.h"
#include "scheduler/transfer.h"

namespace sluice {

// Clears the parts of a block that hold nothing of its sequence: positions behind a partial block's
// tokens, and layers that its group has not. They may be another tenant's, and go below with it.
void clear_unused(const KvLayout& layout, const PagedBlock& block, std::span<std::byte> contents);

class PageTransfers {
 public:
  explicit PageTransfers(std::unique_ptr<KvTier> tier) : tier_(std::move(tier)) {}

  bool accepts_saves() const { return tier_->accepts_saves(); }
  bool idle() const { return started_.empty(); }

  // REQUIRES: nothing is under way for the page.
  void erase(std::int32_t page) { tier_->erase(page); }
  // `contents`: the block's memory, valid until the end is reported. REQUIRES: all rows and copies
  // of earlier plans have run.
  void start(const PlanTransfer& transfer, const PagedBlock& block, std::span<std::byte> contents);
  // Appends the transfers that ended since the last call. Never waits.
  void poll(std::vector<TransferResult>& completed);
  // Returns when a transfer has ended that poll() has not reported, or after `at_most`.
  void wait(Duration at_most) { tier_->wait(at_most); }
  Status flush(Duration at_most) { return tier_->flush(at_most); }

 private:
  struct Started {
    TransferKind kind = TransferKind::kLoadBlock;
    std::int32_t page = 0;
  };

  void note_failure(const Started& started, const Error& error);

  std::unique_ptr<KvTier> tier_;
  std::unordered_map<TransferId, Started> started_;
  std::vector<TierMove> ended_;
  std::int64_t failures_ = 0;
};

}  // namespace sluice
