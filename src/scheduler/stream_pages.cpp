#include "scheduler/stream_pages.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "scheduler/sequence_names.h"

namespace sluice {

// ---------------------------------------------------------------- fetching

void StreamPages::look(Sequence& sequence, const StreamShape& shape, TimePoint now) {
  if (kv_.tier().num_pages() == 0) return;
  const BlockNames names = known_hashes(sequence);
  const std::int32_t piece = shape.piece_tokens();
  std::int32_t found = 0;
  // Whole pieces. A sliding window sees other blocks from each end.
  for (std::int32_t most = sequence.length() - 1;; most = found / piece * piece) {
    found = kv_.match_with_tier(names, most);
    if (found % piece == 0) break;
  }
  if (found == 0) return;
  const PagingWork work{.loads = {found}, .computes = found};
  if (costs_.choose(work, false) == PagingChoice::kCompute) return;
  fetches_ = &sequence;
  found_ = found;
  fetched_ = 0;
  stops_fetch_ = false;
  fetch_began_ = now;
  file_ = sequence.id;
  file_blocks_ = sequence.streamed_blocks;
  ended_ = false;
  sequence.paging = Paging::kLoading;
}

StreamFetch StreamPages::fetch(Sequence& sequence, const StreamShape& shape, Headroom headroom,
                               TransferId& next_id, BatchPlan& plan) {
  if (sequence.paging == Paging::kNone) {
    look(sequence, shape, plan.planned_at);
    if (fetches_ != &sequence) sequence.paging = Paging::kDone;
  }
  if (sequence.paging == Paging::kDone) return StreamFetch::kDone;
  CHECK(fetches_ == &sequence);
  if (busy()) return StreamFetch::kWaits;
  if (!blocks_.empty()) {
    start_write(next_id, plan);
    return StreamFetch::kWaits;
  }
  const std::int32_t size = kv_.block_size();
  const std::int32_t free = kv_.num_available_blocks() - headroom.blocks;
  const std::int32_t room = std::min(kMostBlocks, free / 2);
  const std::int32_t pieces = std::max(1, room / kv_.num_groups() / shape.piece_blocks);
  while (fetched_ < found_ && !stops_fetch_) {
    const std::int32_t first = fetched_ / size;
    const std::int32_t end = std::min(found_ / size, first + pieces * shape.piece_blocks);
    const Hash128 tenant = sequence.request->block_owner.tenant;
    const BlockNames names = known_hashes(sequence);
    // Memory or the tier may have lost some since.
    if (kv_.match_with_tier(names, found_) < found_) break;
    switch (kv_.begin_loads(names, found_, headroom, tenant, blocks_, {first, end})) {
      case LoadStart::kStarted: break;
      case LoadStart::kUnderWay: return StreamFetch::kWaits;
      case LoadStart::kNoMemory: return StreamFetch::kNoMemory;
    }
    fetched_next_ = end * size;
    if (blocks_.empty()) {  // no layer sees these any more
      fetched_ = fetched_next_;
      continue;
    }
    start(TransferKind::kLoadBlock, next_id, plan);
    if (!busy()) start_write(next_id, plan);
    return StreamFetch::kWaits;
  }
  end_fetch(plan.planned_at);
  return StreamFetch::kDone;
}

void StreamPages::end_fetch(TimePoint now) {
  Sequence& sequence = *fetches_;
  fetches_ = nullptr;
  // Layers with windows have only what is seen from the end of all that was found.
  const bool slides = std::ranges::any_of(kv_.options().group_windows,
                                          [](std::int32_t window) { return window > 0; });
  if (fetched_ < found_ && slides) fetched_ = 0;
  sequence.paging = Paging::kDone;
  sequence.streamed_kept = fetched_;
  sequence.streamed_reached = fetched_;
  sequence.cached_prompt_tokens = std::min(fetched_, sequence.prompt_len);
  costs_.note_load(TierLevel::kSlow, fetched_, now - fetch_began_);
}

// ---------------------------------------------------------------- keeping

void StreamPages::begin(const Sequence& sequence) {
  const Request& request = *sequence.request;
  file_ = sequence.id;
  file_blocks_ = sequence.streamed_blocks;
  ended_ = false;
  keeps_ =
      kv_.tier().num_pages() > 0 && request.block_hash_root && !request.block_owner.memory_only;
  source_ = &sequence;
  owner_ = request.block_owner;
  // The file has not all that was fetched.
  kept_from_ = kept_ = sequence.streamed_kept / kv_.block_size();
  keeps_until_.reset();
}

std::span<const Hash128> StreamPages::names() const {
  return source_ != nullptr ? std::span(known_hashes(*source_)) : std::span(names_);
}

std::int32_t StreamPages::end_of_kept(const StreamShape& shape) const {
  auto end = static_cast<std::int32_t>(names().size());
  if (source_ != nullptr) {
    const std::int32_t tokens = std::max(source_->computed, source_->streamed_kept);
    end = std::min(end, tokens / kv_.block_size());
  }
  return end / shape.piece_blocks * shape.piece_blocks;
}

// Whether the next piece of the group is.
bool StreamPages::is_kept(std::int32_t group, const StreamShape& shape) const {
  const auto piece = names().subspan(static_cast<std::size_t>(kept_next_),
                                     static_cast<std::size_t>(shape.piece_blocks));
  return std::ranges::all_of(piece, [&](Hash128 name) { return kv_.is_kept(name, group); });
}

void StreamPages::keep(const StreamShape& shape, bool accepted, std::int32_t spare, TimePoint now,
                       TransferId& next_id, BatchPlan& plan) {
  if (!keeps_) return;
  if (ended_ && !keeps_until_) keeps_until_ = now + kMostKeeping;
  if (busy() || fetches_ != nullptr) return;
  const std::int32_t end = end_of_kept(shape);
  const bool given_up = ended_ && (!accepted || now >= *keeps_until_);
  const bool unsaved = kv_.num_unsaved() > 0;
  if (given_up || (kept_ >= end && !(ended_ && unsaved))) {
    keeps_ = !ended_;
    if (ended_) kv_.touch_saved(names());
    return;
  }
  if (!accepted || unsaved) return;
  CHECK(blocks_.empty());
  // By group, as StreamFile's order is; the same pieces of each.
  const std::int32_t unit = shape.piece_blocks * kv_.num_groups();
  const std::int32_t room = std::min(kMostBlocks, kv_.num_available_blocks() - spare);
  std::int32_t pieces = std::min(room / unit, (end - kept_) / shape.piece_blocks);
  if (pieces <= 0) {
    if (kv_.num_available_blocks() - spare < unit) return;
    pieces = 1;
  }
  for (std::int32_t group = 0; group < kv_.num_groups(); ++group) {
    kept_next_ = kept_;
    for (std::int32_t piece = 0; piece < pieces; ++piece, kept_next_ += shape.piece_blocks) {
      if (is_kept(group, shape)) continue;
      for (std::int32_t b = kept_next_; b < kept_next_ + shape.piece_blocks; ++b) {
        auto block = kv_.begin_fill(names()[static_cast<std::size_t>(b)], group, b);
        CHECK(block.has_value());
        blocks_.push_back(*block);
      }
    }
  }
  if (blocks_.empty()) {
    kept_ = kept_next_;
    return;
  }
  start(TransferKind::kReadStream, next_id, plan);
}

void StreamPages::end(const Sequence& sequence, std::span<const Hash128> names) {
  if (fetches_ == &sequence) {
    fetches_ = nullptr;
    if (!busy()) let_go();
  }
  if (file_ != sequence.id) return;
  ended_ = true;
  if (source_ != &sequence) return;
  source_ = nullptr;
  names_.assign(names.begin(), names.end());
}

void StreamPages::forget(const Sequence& sequence, bool wrong) {
  if (wrong && source_ == &sequence && keeps_) {
    const auto first = static_cast<std::size_t>(kept_from_);
    const auto end = static_cast<std::size_t>(kept_);
    kv_.forget_names(names().subspan(first, end - first));
  }
  if (source_ == &sequence) {
    keeps_ = false;
    failed_ = failed_ || kind_ == TransferKind::kReadStream;
  }
  end(sequence, {});
}

std::optional<SequenceId> StreamPages::take_ended() {
  if (!ended_ || file_ == 0 || keeps_file()) return std::nullopt;
  ended_ = false;
  return std::exchange(file_, 0);
}

// ---------------------------------------------------------------- transfers

void StreamPages::start(TransferKind kind, TransferId& next_id, BatchPlan& plan) {
  kind_ = kind;
  first_ = next_id;
  failed_ = false;
  for (const PagedBlock& block : blocks_) {
    if (kind == TransferKind::kLoadBlock && block.page == TierIndex::kNoPage) continue;
    plan.transfers.push_back(
        {next_id++, kind, static_cast<std::int32_t>(plan.pages.size()), block.page});
    plan.pages.push_back(block);
  }
  num_transfers_ = next_id - first_;
  under_way_ = static_cast<std::int32_t>(num_transfers_);
  if (moves_stream(kind)) plan.stream_file = {file_, file_blocks_};
}

void StreamPages::start_write(TransferId& next_id, BatchPlan& plan) {
  start(TransferKind::kWriteStream, next_id, plan);
}

void StreamPages::complete(const TransferResult& result) {
  CHECK(under_way_ > 0);
  failed_ = failed_ || result.failed;
  --under_way_;
  if (kind_ == TransferKind::kLoadBlock) end_load(result);
  if (under_way_ > 0) return;
  switch (kind_) {
    case TransferKind::kLoadBlock: end_loads(); break;
    case TransferKind::kWriteStream:
      let_go();
      if (failed_) stop_fetch();
      if (!failed_) fetched_ = fetched_next_;
      break;
    default: end_reads();
  }
}

void StreamPages::end_load(const TransferResult& result) {
  auto left = static_cast<std::int64_t>(result.id - first_);
  for (const PagedBlock& block : blocks_) {
    if (block.page == TierIndex::kNoPage || left-- > 0) continue;
    const PageLoadEnd failure = result.damaged ? PageLoadEnd::kDamaged : PageLoadEnd::kUnreadable;
    // The name may have been forgotten meanwhile.
    const bool loaded = kv_.end_load(block, result.failed ? failure : PageLoadEnd::kLoaded);
    failed_ = failed_ || !loaded;
    return;
  }
}

// The blocks are written next.
void StreamPages::end_loads() {
  if (!failed_ && fetches_ != nullptr) return;
  let_go();
  stop_fetch();
}

void StreamPages::end_reads() {
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
    kv_.end_fill(*block, owner_, !failed_);
  }
  blocks_.clear();
  kept_ = kept_next_;
  if (failed_) keeps_ = false;
}

void StreamPages::let_go() {
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) kv_.let_go(*block);
  blocks_.clear();
}

}  // namespace sluice
