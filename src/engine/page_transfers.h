// PageTransfers: runs the transfers of plans that move KV blocks to and from a tier, beside
// compute. Where the host reaches the device's memory, the tier reads and writes the blocks in
// their places. Otherwise they pass through BlockStaging: a save is copied to the host and then
// saved, a load is loaded and then copied to the device. Transfers wait for a free buffer, loads
// first.
//
// A block that fails to load is computed again by the scheduler. It is erased from the tier only if
// its page does not hold it: an error of the disk may pass.
// Owner: the model runner. Threads: the engine's thread; the tier may have its own. An error that a
// function returns is the device's, and final.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "engine/block_staging.h"
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
  // `staging`: null if the host reaches the device's memory. REQUIRES: the layout outlives this.
  PageTransfers(std::unique_ptr<KvTier> tier, const KvLayout& layout,
                std::unique_ptr<BlockStaging> staging = nullptr)
      : layout_(&layout), staging_(std::move(staging)), tier_(std::move(tier)) {}

  bool accepts_saves() const { return tier_->accepts_saves(); }
  bool idle() const { return started_.empty() && completed_.empty(); }
  std::int64_t memory_bytes() const { return tier_->memory_bytes(); }
  TierLevels levels() const { return tier_->levels(); }
  // Appends the pages whose blocks the tier has dropped. Called after poll().
  void take_lost(std::vector<PagedBlock>& lost);
  void take_levels(std::vector<PageLevel>& changes) { tier_->take_levels(changes); }

  // REQUIRES: nothing is under way for the page.
  void erase(std::int32_t page) { tier_->erase(page); }
  // `contents`: the block's memory on the device, valid until the end is reported. With staging it
  // is used after the compute queue's mark `after` (Transfers::kNoMark: at once). REQUIRES without:
  // all rows and copies of earlier plans have run.
  Status start(const PlanTransfer& transfer, const PagedBlock& block, std::span<std::byte> contents,
               std::size_t after = Transfers::kNoMark);
  // Called after the last start() of a plan.
  Status submit() { return staging_ ? staging_->submit() : Status{}; }
  // Appends the transfers that ended since the last call. Never waits.
  Status poll(std::vector<TransferResult>& completed);
  // Returns when a transfer has ended that poll() has not reported, or after `at_most`.
  Status wait(Duration at_most);
  Status flush(Duration at_most);

 private:
  struct Started {
    TransferKind kind = TransferKind::kLoadBlock;
    PagedBlock block;
    std::byte* contents = nullptr;
    std::size_t buffer = 0;  // of the staging, once it has one
  };

  static TierPage page_of(const PagedBlock& block) {
    return {block.page, block.group, block.name, block.tenant, block.haste};
  }
  static bool saves(const Started& started) { return started.kind == TransferKind::kSaveBlock; }
  Status advance();
  Status advance_staging();
  Status begin_waiting();
  // A move of the tier has ended.
  Status end_move(const TierMove& move);
  void report(TransferId id, const Status& status);
  void note_failure(bool loads, const Error& error);

  const KvLayout* layout_;
  std::unique_ptr<BlockStaging> staging_;
  std::unique_ptr<KvTier> tier_;  // after the buffers, which its threads use
  std::unordered_map<TransferId, Started> started_;
  std::vector<TransferResult> completed_;  // not reported yet
  std::vector<TierMove> ended_;
  std::vector<TierPage> lost_;
  std::int64_t failures_ = 0;
  // With staging.
  std::deque<TransferId> waiting_loads_;  // for a buffer
  std::deque<TransferId> waiting_saves_;
  std::vector<TransferId> by_buffer_;
  std::vector<std::size_t> copied_;
};

}  // namespace sluice
