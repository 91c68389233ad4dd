#include "function/kv_limit.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice {

void KvLimit::start() {
  told_ = options_.first;
  before_ = 0;
  backed_ = told_;
  told_at_.reset();
  over_since_.reset();
  seen_ = true;
  alive_ = true;
}

void KvLimit::end() {
  if (options_.first > 0) wanted_ = options_.first;
  alive_ = false;
}

std::optional<std::int64_t> KvLimit::next(TimePoint now) {
  if (wanted_ == told_ || !seen_) return std::nullopt;
  if (checks()) {
    // The process counts blocks: it would show nothing new.
    const bool same = wanted_ / options_.block_bytes == told_ / options_.block_bytes;
    if (same) {
      told_ = wanted_;
      return std::nullopt;
    }
    before_ = told_;
    seen_ = false;
    told_at_ = now;
  }
  told_ = wanted_;
  return told_;
}

void KvLimit::shown(std::int32_t limit_blocks, std::int32_t backed_blocks) {
  if (!checks()) return;
  // It cannot have more than it was ever allowed, whatever it says.
  backed_ = std::clamp<std::int64_t>(backed_blocks * options_.block_bytes, 0,
                                     std::max({told_, before_, backed_}));
  if (limit_blocks <= 0 || limit_blocks != told_ / options_.block_bytes) return;
  seen_ = true;
  before_ = 0;
  if (backed_ <= told_) told_at_.reset();
}

void KvLimit::note_own_memory(TimePoint now, std::int64_t bytes) {
  if (!checks() || options_.beside <= 0 || bytes <= std::max(told_, held()) + options_.beside) {
    over_since_.reset();
  } else if (!over_since_) {
    over_since_ = now;
  }
}

std::int64_t KvLimit::held() const {
  if (!alive_ || !checks()) return 0;
  if (!seen_) return std::max({backed_, told_, before_});
  return wanted_ < told_ ? std::max(backed_, told_) : backed_;
}

std::optional<std::string> KvLimit::late(TimePoint now) const {
  if (told_at_ && now - *told_at_ > options_.patience) {
    return fmt::format("it does not keep to its limit of {} MiB of KV memory", told_ >> 20);
  }
  if (over_since_ && now - *over_since_ > options_.patience) {
    return fmt::format(
        "it has more memory of its own than {} MiB of KV memory and {} MiB for all "
        "else",
        told_ >> 20, options_.beside >> 20);
  }
  return std::nullopt;
}

}  // namespace sluice
