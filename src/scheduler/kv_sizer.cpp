#include "scheduler/kv_sizer.h"

#include <algorithm>

#include "base/check.h"

namespace sluice {
namespace {

// A step that moves blocks takes longer by their copies, so their bytes are limited, too.
std::int32_t moves_per_plan(std::int32_t chunk_blocks) {
  if (chunk_blocks == 0) return KvSizer::kMovesPerPlan;
  return std::min(KvSizer::kMovesPerPlan, KvSizer::kChunksMovedPerPlan * chunk_blocks);
}

}  // namespace

KvSizer::KvSizer(KvManager& kv, Duration idle_release)
    : kv_(kv),
      idle_release_(idle_release),
      backed_(kv.options().num_blocks),
      limit_(kv.options().max_blocks),
      asked_(backed_) {
  CHECK(idle_release.count() >= 0);
}

// KV memory is sized in whole chunks, the null block included, or at its maximum.
std::int32_t KvSizer::whole_chunks(std::int64_t blocks) const {
  const std::int64_t chunk = kv_.options().chunk_blocks;
  return static_cast<std::int32_t>(
      std::min<std::int64_t>((blocks + chunk - 1) / chunk * chunk, limit_));
}

void KvSizer::begin(TimePoint now, const ResourceView& resources) {
  const KvOptions& options = kv_.options();
  const bool fixed = options.chunk_blocks == 0;
  if (resources.kv_backed_blocks > 0) {
    CHECK(resources.kv_backed_blocks <= options.max_blocks);
    backed_ = resources.kv_backed_blocks;
  }
  limit_ = options.max_blocks;
  if (resources.kv_limit_blocks > 0) limit_ = std::min(limit_, resources.kv_limit_blocks);
  if (resources.kv_growth_failed && asked_ > backed_) {
    asked_ = backed_;
    refused_at_ = asked_at_;
  }
  if (active_) {
    active_ = false;
    released_ = false;
    quiet_since_ = now;
  }
  wanted_ = 0;
  can_grow_ = !fixed && backed_ < limit_ && (!refused_at_ || now - *refused_at_ >= kGrowthRetry);
  const std::int32_t usable = std::min(backed_, limit_);
  if (!releasing_ && usable > kv_.num_usable_blocks() + 1) kv_.resize(usable);
}

void KvSizer::apply_limit() {
  CHECK(!over_limit());
  if (limit_ < kv_.num_usable_blocks() + 1) kv_.resize(limit_);
}

bool KvSizer::stop_release() {
  if (!releasing_) return false;
  releasing_ = false;
  active_ = true;
  // The limit may have fallen below what is held meanwhile; apply_limit() shrinks, not this.
  const std::int32_t now = kv_.num_usable_blocks() + 1;
  const std::int32_t end = std::max(std::min(backed_, limit_), now);
  kv_.resize(end);
  return end > now;
}

void KvSizer::finish(TimePoint now, std::int32_t reserve, BatchPlan& plan) {
  const std::int32_t missing = std::max(wanted_, reserve - kv_.num_fresh_blocks());
  if (missing > 0 && stop_release()) return;
  if (missing > 0 && can_grow_) {
    grow(now, missing, plan);
    return;
  }
  const bool due = idle_release_.count() > 0 && now - quiet_since_ >= idle_release_;
  const bool may_release = kv_.options().chunk_blocks > 0 && !over_limit();
  if (due && may_release && !released_ && !releasing_) begin_release(reserve);
  if (kv_.num_usable_blocks() + 1 < backed_) move_and_return(plan);
}

void KvSizer::grow(TimePoint now, std::int32_t missing, BatchPlan& plan) {
  plan.kv_blocks = whole_chunks(std::int64_t{backed_} + missing);
  CHECK(plan.kv_blocks > backed_);
  asked_ = plan.kv_blocks;
  asked_at_ = now;
  refused_at_.reset();
}

void KvSizer::begin_release(std::int32_t reserve) {
  kv_.drop_cached();
  const std::int64_t kept = std::int64_t{kv_.num_held_blocks()} + 1 + reserve;
  const std::int32_t end = std::max(whole_chunks(kept), std::min(kv_.options().num_blocks, limit_));
  if (end >= kv_.num_usable_blocks() + 1) {
    released_ = true;
    return;
  }
  releasing_ = true;
  kv_.resize(end);
}

void KvSizer::move_and_return(BatchPlan& plan) {
  if (kv_.num_blocks_above() > 0) {
    // A copy-on-write could use a moved block, so one plan never has both.
    if (!plan.copies.empty()) return;
    BlockChanges changes = plan.block_changes();
    kv_.move_down(moves_per_plan(kv_.options().chunk_blocks), changes);
    if (kv_.num_blocks_above() > 0) return;
  }
  if (releasing_) released_ = true;
  releasing_ = false;
  if (kv_.options().chunk_blocks == 0) return;
  plan.kv_blocks = kv_.num_usable_blocks() + 1;
  asked_ = plan.kv_blocks;
}

std::optional<TimePoint> KvSizer::wake_at() const {
  if (idle_release_.count() == 0 || kv_.options().chunk_blocks == 0) return std::nullopt;
  if (released_ && !active_) return std::nullopt;
  // The first plan after an activity records the time.
  return active_ ? quiet_since_ : quiet_since_ + idle_release_;
}

void KvSizer::check_integrity() const {
  CHECK(kv_.num_usable_blocks() + 1 <= backed_);
  CHECK(kv_.num_blocks_above() == 0 || kv_.num_usable_blocks() + 1 < backed_);
}

}  // namespace sluice
