#include "kv/tier_index.h"

#include "base/check.h"

namespace sluice {

bool TierIndex::restore(std::int32_t page, Hash128 name, std::int32_t group) {
  const BlockId id = page + 1;
  CHECK(page >= 0 && page < num_pages() && !names_.holds(id) && !under_way(page));
  if (names_.find(name, group) != kNullBlock) return false;
  names_.insert(id, name, group);
  pages_.add_ref(id);
  give_back(id);
  return true;
}

std::int32_t TierIndex::begin_save() {
  if (pages_.num_free() == 0) return kNoPage;
  const BlockId id = pages_.take();
  if (names_.holds(id)) names_.erase(id);
  return id - 1;
}

void TierIndex::end_save(std::int32_t page, Hash128 name, std::int32_t group, bool saved) {
  const BlockId id = page + 1;
  CHECK(under_way(page) && !names_.holds(id));
  if (saved && names_.find(name, group) == kNullBlock) names_.insert(id, name, group);
  give_back(id);
}

bool TierIndex::end_load(std::int32_t page, Hash128 name, std::int32_t group, bool loaded) {
  const BlockId id = page + 1;
  CHECK(under_way(page));
  const bool named = names_.holds(id);
  CHECK(!named || (names_.name(id) == name && names_.group(id) == group));
  if (named && !loaded) names_.erase(id);
  give_back(id);
  return named && loaded;
}

bool TierIndex::touch(Hash128 name, std::int32_t group) {
  const BlockId id = names_.find(name, group);
  if (id == kNullBlock) return false;
  pages_.add_ref(id);
  give_back(id);
  return true;
}

std::int32_t TierIndex::forget(Hash128 name, std::int32_t group) {
  const BlockId id = names_.find(name, group);
  if (id == kNullBlock) return kNoPage;
  names_.erase(id);
  if (pages_.ref_count(id) == 0) pages_.demote(id);
  return id - 1;
}

void TierIndex::check_integrity() const {
  names_.check_integrity();
  pages_.check_integrity();
}

}  // namespace sluice
