#include "engine/page_transfers.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
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

Status PageTransfers::start(const PlanTransfer& transfer, const PagedBlock& block,
                            std::span<std::byte> contents, std::size_t after) {
  CHECK(transfer.kind == TransferKind::kSaveBlock || transfer.kind == TransferKind::kLoadBlock);
  const bool saves = transfer.kind == TransferKind::kSaveBlock;
  started_.emplace(transfer.id, Started{transfer.kind, block, contents.data()});
  if (!saves) tier_->touch(block.page);
  if (staging_) {
    RETURN_IF_ERROR(staging_->begin_after(after));
    (saves ? waiting_saves_ : waiting_loads_).push_back(transfer.id);
    return begin_waiting();
  }
  if (saves) {
    clear_unused(*layout_, block, contents);
    tier_->save(transfer.id, page_of(block), contents);
  } else {
    tier_->load(transfer.id, page_of(block), contents);
  }
  return {};
}

// Starts what waits for a buffer, as long as there is one, loads first.
Status PageTransfers::begin_waiting() {
  by_buffer_.resize(staging_->num_buffers());
  while (!waiting_loads_.empty() || !waiting_saves_.empty()) {
    const auto buffer = staging_->take();
    if (!buffer) break;
    std::deque<TransferId>& waiting = waiting_loads_.empty() ? waiting_saves_ : waiting_loads_;
    const TransferId id = waiting.front();
    waiting.pop_front();
    by_buffer_[*buffer] = id;
    Started& started = started_.at(id);
    started.buffer = *buffer;
    if (saves(started)) {
      RETURN_IF_ERROR(staging_->copy(CopyKind::kDeviceToHost, *buffer, started.contents));
    } else {
      tier_->load(id, page_of(started.block), staging_->bytes(*buffer));
    }
  }
  return {};
}

// A copy to the host goes on into the tier; a copy to the device ends its load.
Status PageTransfers::advance_staging() {
  copied_.clear();
  RETURN_IF_ERROR(staging_->poll(copied_));
  for (const std::size_t buffer : copied_) {
    const TransferId id = by_buffer_[buffer];
    const Started& started = started_.at(id);
    if (saves(started)) {
      clear_unused(*layout_, started.block, staging_->bytes(buffer));
      tier_->save(id, page_of(started.block), staging_->bytes(buffer));
    } else {
      staging_->give(buffer);
      report(id, {});
    }
  }
  return {};
}

Status PageTransfers::end_move(const TierMove& move) {
  const auto found = started_.find(move.id);
  CHECK(found != started_.end());
  const Started& started = found->second;
  if (staging_) {
    if (move.status && !saves(started)) {
      return staging_->copy(CopyKind::kHostToDevice, started.buffer, started.contents);
    }
    staging_->give(started.buffer);
  }
  report(move.id, move.status);
  return {};
}

Status PageTransfers::advance() {
  if (started_.empty()) return {};
  if (staging_) RETURN_IF_ERROR(advance_staging());
  ended_.clear();
  tier_->poll(ended_);
  for (const TierMove& move : ended_) RETURN_IF_ERROR(end_move(move));
  if (!staging_) return {};
  RETURN_IF_ERROR(begin_waiting());
  return staging_->submit();
}

void PageTransfers::report(TransferId id, const Status& status) {
  const auto found = started_.find(id);
  const bool loads = found->second.kind == TransferKind::kLoadBlock;
  TransferResult result{.id = id};
  if (!status) {
    result.failed = true;
    result.damaged = loads && status.error().code != ErrorCode::kUnavailable;
    if (result.damaged) tier_->erase(found->second.block.page);
    note_failure(loads, status.error());
  }
  completed_.push_back(result);
  started_.erase(found);
}

Status PageTransfers::poll(std::vector<TransferResult>& completed) {
  RETURN_IF_ERROR(advance());
  completed.insert(completed.end(), completed_.begin(), completed_.end());
  completed_.clear();
  return {};
}

void PageTransfers::take_lost(std::vector<PagedBlock>& lost) {
  lost_.clear();
  tier_->take_lost(lost_);
  for (const TierPage& page : lost_) {
    lost.push_back({.page = page.page, .group = page.group, .name = page.name, .tenant = {}});
  }
}

Status PageTransfers::wait(Duration at_most) {
  if (!staging_) {
    tier_->wait(at_most);
    return {};
  }
  constexpr auto kPause = std::chrono::microseconds(50);  // between two looks at the copies
  const SystemClock clock;
  const TimePoint end = clock.now() + at_most;
  while (true) {
    RETURN_IF_ERROR(advance());
    if (!completed_.empty() || started_.empty() || clock.now() >= end) return {};
    tier_->wait(kPause);
  }
}

Status PageTransfers::flush(Duration at_most) {
  const SystemClock clock;
  const TimePoint end = clock.now() + at_most;
  while (staging_ && !started_.empty() && clock.now() < end) {
    RETURN_IF_ERROR(advance());
    tier_->wait(std::chrono::milliseconds(1));
  }
  return tier_->flush(std::max(end - clock.now(), Duration{0}));
}

// A tier that fails may fail for every block, and some tiers say so themselves: the 1st, 32nd,
// 1,024th... failure is logged.
void PageTransfers::note_failure(bool loads, const Error& error) {
  ++failures_;
  const auto failures = static_cast<std::uint64_t>(failures_);
  if (!std::has_single_bit(failures) || std::countr_zero(failures) % 5 != 0) return;
  log_warning(fmt::format("KV tier: a block was not {}: {}; {} ({} such failures so far)",
                          loads ? "loaded" : "saved", error.message,
                          loads ? "it is computed again" : "it stays in memory only", failures_));
}

}  // namespace sluice
