#include "engine/page_transfers.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/log.h"

namespace sluice {

void clear_unused(const KvLayout& layout, const PagedBlock& block, std::span<std::byte> contents) {
  const KvGroup& group = layout.groups[static_cast<std::size_t>(block.group)];
  const auto used = static_cast<std::int64_t>(group.layers.size()) * layout.layer_bytes;
  std::memset(contents.data() + used, 0, static_cast<std::size_t>(layout.block_bytes - used));
  if (block.tokens == 0) return;
  const std::int64_t token = layout.token_stride * layout.element_bytes;
  const std::int64_t head = layout.head_stride * layout.element_bytes;
  const auto rest = static_cast<std::size_t>((layout.block_size - block.tokens) * token);
  for (const std::int32_t layer : group.layers) {
    const KvLayerPlace& place = layout.layers[static_cast<std::size_t>(layer)];
    for (const std::int64_t offset : {place.k_offset, place.v_offset}) {
      for (std::int64_t h = 0; h < layout.num_kv_heads; ++h) {
        std::memset(contents.data() + offset + h * head + block.tokens * token, 0, rest);
      }
    }
  }
}

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
    TransferResult result{.id = move.id};
    if (!move.status) {
      result.failed = true;
      result.damaged = move.status.error().code != ErrorCode::kUnavailable &&
                       started->second.kind == TransferKind::kLoadBlock;
      if (result.damaged) tier_->erase(started->second.page);
      note_failure(started->second, move.status.error());
    }
    completed.push_back(result);
    started_.erase(started);
  }
}

// A tier that fails may fail for every block: the 1st, 2nd, 4th, 8th... failure is logged.
void PageTransfers::note_failure(const Started& started, const Error& error) {
  const bool loads = started.kind == TransferKind::kLoadBlock;
  ++failures_;
  if (!std::has_single_bit(static_cast<std::uint64_t>(failures_))) return;
  log_warning(fmt::format("KV tier: a block was not {}: {}; {} ({} such failures so far)",
                          loads ? "loaded" : "saved", error.message,
                          loads ? "it is computed again" : "it stays in memory only", failures_));
}

}  // namespace sluice
