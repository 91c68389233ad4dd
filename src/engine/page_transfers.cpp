#include "engine/page_transfers.h"

#include <fmt/format.h>

#include <bit>

#include "base/check.h"
#include "base/log.h"

namespace sluice {

void PageTransfers::start(const PlanTransfer& transfer, const PagedBlock& block,
                          std::span<std::byte> contents) {
  started_.emplace(transfer.id, Started{transfer.kind, block.page});
  const TierPage page{block.page, block.group, block.name, block.tenant};
  if (transfer.kind == TransferKind::kSaveBlock) {
    tier_->save(transfer.id, page, contents);
  } else {
    CHECK(transfer.kind == TransferKind::kLoadBlock);
    tier_->touch(block.page);
    tier_->load(transfer.id, page, contents);
  }
}

void PageTransfers::poll(std::vector<TransferResult>& completed) {
  if (idle()) return;
  ended_.clear();
  tier_->poll(ended_);
  for (const TierMove& move : ended_) {
    const auto started = started_.find(move.id);
    CHECK(started != started_.end());
    if (!move.status) note_failure(started->second, move.status.error());
    completed.push_back({move.id, !move.status.has_value()});
    started_.erase(started);
  }
}

// A tier that fails may fail for every block: the 1st, 2nd, 4th, 8th... failure is logged.
void PageTransfers::note_failure(const Started& started, const Error& error) {
  const bool loads = started.kind == TransferKind::kLoadBlock;
  if (loads) tier_->erase(started.page);
  ++failures_;
  if (!std::has_single_bit(static_cast<std::uint64_t>(failures_))) return;
  log_warning(fmt::format("KV tier: a block was not {}: {}; {} ({} such failures so far)",
                          loads ? "loaded" : "saved", error.message,
                          loads ? "it is computed again" : "it stays in memory only", failures_));
}

}  // namespace sluice
