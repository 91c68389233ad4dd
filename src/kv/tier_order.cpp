#include "kv/tier_order.h"

#include <algorithm>

#include "base/check.h"

namespace sluice {

TierOrder::TierOrder(std::int32_t max_id, const TierEvictionOptions& options) : options_(options) {
  if (options.by != TierEviction::kSeconds) return;
  const std::size_t ids = index(max_id) + 1;
  heap_.reserve(ids);
  place_.assign(ids, kOutside);
  value_.assign(ids, 0);
  stamp_.assign(ids, 0);
  uses_.assign(ids, 0);
}

double TierOrder::seconds(std::int32_t depth) const {
  if (options_.even_depth <= 0) return 1;
  const std::int32_t seen = options_.window > 0 ? std::min(depth, options_.window) : depth;
  return 1 + seen / options_.even_depth;
}

void TierOrder::use(BlockId id, std::int32_t depth) {
  CHECK(!contains(id));
  if (uses_[index(id)] < kMaxUses) ++uses_[index(id)];
  value_[index(id)] = std::max(value(id), floor_ + uses_[index(id)] * seconds(depth));
  stamp_[index(id)] = next_stamp_++;
}

void TierOrder::reset(BlockId id) {
  CHECK(!contains(id));
  uses_[index(id)] = 0;
  value_[index(id)] = 0;
}

void TierOrder::insert(BlockId id) {
  CHECK(!contains(id));
  heap_.push_back(id);
  place_[index(id)] = size() - 1;
  sift_up(heap_.size() - 1);
}

void TierOrder::remove(BlockId id) {
  CHECK(contains(id));
  const std::size_t place = index(place_[index(id)]);
  const BlockId last = heap_.back();
  heap_.pop_back();
  place_[index(id)] = kOutside;
  if (last == id) return;
  put(place, last);
  sift_up(place);
  sift_down(index(place_[index(last)]));
}

BlockId TierOrder::take() {
  CHECK(!heap_.empty());
  const BlockId id = heap_.front();
  floor_ = std::max(floor_, value(id));
  remove(id);
  return id;
}

void TierOrder::put(std::size_t place, BlockId id) {
  heap_[place] = id;
  place_[index(id)] = static_cast<std::int32_t>(place);
}

void TierOrder::sift_up(std::size_t place) {
  const BlockId id = heap_[place];
  while (place > 0 && key(id) < key(heap_[(place - 1) / 2])) {
    put(place, heap_[(place - 1) / 2]);
    place = (place - 1) / 2;
  }
  put(place, id);
}

void TierOrder::sift_down(std::size_t place) {
  const BlockId id = heap_[place];
  for (;;) {
    std::size_t child = 2 * place + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && key(heap_[child + 1]) < key(heap_[child])) ++child;
    if (key(id) < key(heap_[child])) break;
    put(place, heap_[child]);
    place = child;
  }
  put(place, id);
}

void TierOrder::check_integrity() const {
  std::size_t inside = 0;
  for (const std::int32_t place : place_) inside += place == kOutside ? 0 : 1;
  CHECK(inside == heap_.size());
  for (std::size_t i = 0; i < heap_.size(); ++i) {
    CHECK(index(place_[index(heap_[i])]) == i);
    CHECK(i == 0 || !(key(heap_[i]) < key(heap_[(i - 1) / 2])));
  }
}

}  // namespace sluice
