#include "kv/tier_index.h"

#include "base/check.h"

namespace sluice {

bool TierIndex::restore(std::int32_t page, Hash128 name, std::int32_t group) {
  const BlockId id = page + 1;
  CHECK(page >= 0 && page < num_pages() && !names_.holds(id) && !under_way(page));
  if (names_.find(name, group) != kNullBlock) return false;
  names_.insert(id, name, group);
  hold(id);
  // Its depth and uses are not known: it is as a block at the beginning that was used once.
  if (by_seconds_) order_.use(id, 0);
  give_back(id);
  return true;
}

std::int32_t TierIndex::begin_save() {
  if (pages_.num_free() == 0) return kNoPage;
  BlockId id = pages_.front();
  if (by_seconds_ && names_.holds(id)) {
    id = order_.take();
    pages_.add_ref(id);
  } else {
    CHECK(pages_.take() == id);
  }
  if (by_seconds_) order_.reset(id);
  if (names_.holds(id)) names_.erase(id);
  return id - 1;
}

void TierIndex::end_save(std::int32_t page, Hash128 name, std::int32_t group, bool saved,
                         std::int32_t depth) {
  const BlockId id = page + 1;
  CHECK(under_way(page) && !names_.holds(id));
  if (saved && names_.find(name, group) == kNullBlock) {
    names_.insert(id, name, group);
    if (by_seconds_) order_.use(id, depth);
  }
  give_back(id);
}

bool TierIndex::end_load(std::int32_t page, Hash128 name, std::int32_t group, PageLoadEnd end) {
  const BlockId id = page + 1;
  CHECK(under_way(page));
  const bool named = names_.holds(id);
  CHECK(!named || (names_.name(id) == name && names_.group(id) == group));
  if (named && end == PageLoadEnd::kDamaged) {
    end_protection(id);
    names_.erase(id);
  }
  give_back(id);
  return named && end == PageLoadEnd::kLoaded;
}

bool TierIndex::touch(Hash128 name, std::int32_t group, std::int32_t depth) {
  const BlockId id = names_.find(name, group);
  if (id == kNullBlock) return false;
  hold(id);
  if (by_seconds_) order_.use(id, depth);
  give_back(id);
  return true;
}

std::int32_t TierIndex::forget(Hash128 name, std::int32_t group) {
  const BlockId id = names_.find(name, group);
  if (id == kNullBlock) return kNoPage;
  end_protection(id);
  names_.erase(id);
  if (pages_.ref_count(id) > 0) return id - 1;
  if (by_seconds_) order_.remove(id);
  pages_.demote(id);
  return id - 1;
}

void TierIndex::protect(Hash128 name, std::int32_t group) {
  const BlockId id = names_.find(name, group);
  const bool is_full = 2 * (num_protected_ + 1) > num_pages();
  if (id == kNullBlock || protected_[index(id)] != 0 || is_full) return;
  protected_[index(id)] = 1;
  ++num_protected_;
  hold(id);
}

void TierIndex::unprotect(Hash128 name, std::int32_t group) {
  const BlockId id = names_.find(name, group);
  if (id != kNullBlock) end_protection(id);
}

void TierIndex::end_protection(BlockId id) {
  if (protected_[index(id)] == 0) return;
  protected_[index(id)] = 0;
  --num_protected_;
  give_back(id);
}

std::int32_t TierIndex::num_under_way() const {
  if (num_protected_ == 0) return pages_.num_used();
  std::int32_t count = 0;
  for (std::int32_t page = 0; page < num_pages(); ++page) count += under_way(page) ? 1 : 0;
  return count;
}

void TierIndex::check_integrity() const {
  names_.check_integrity();
  pages_.check_integrity();
  std::int32_t count = 0;
  for (BlockId id = 0; id < pages_.max_blocks(); ++id) {
    CHECK(protected_[index(id)] == 0 || (names_.holds(id) && pages_.ref_count(id) > 0));
    count += protected_[index(id)];
  }
  if (by_seconds_) {
    order_.check_integrity();
    for (BlockId id = 1; id < pages_.max_blocks(); ++id) {
      CHECK(order_.contains(id) == (names_.holds(id) && pages_.ref_count(id) == 0));
    }
  }
  CHECK(count == num_protected_ && 2 * num_protected_ <= num_pages() + 1);
}

}  // namespace sluice
