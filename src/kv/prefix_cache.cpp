#include "kv/prefix_cache.h"

#include <bit>

#include "base/check.h"

namespace sluice {

PrefixCache::PrefixCache(std::int32_t max_blocks)
    : hashes_(index(max_blocks)), groups_(index(max_blocks), -1) {
  table_.assign(std::bit_ceil(2 * index(max_blocks)), kNullBlock);
  mask_ = table_.size() - 1;
}

BlockId PrefixCache::find(Hash128 hash, std::int32_t group) const {
  for (std::size_t i = home(hash, group);; i = (i + 1) & mask_) {
    const BlockId id = table_[i];
    if (id == kNullBlock) return kNullBlock;
    if (hashes_[index(id)] == hash && groups_[index(id)] == group) return id;
  }
}

void PrefixCache::insert(BlockId id, Hash128 hash, std::int32_t group) {
  CHECK(id != kNullBlock && !holds(id));
  DCHECK(find(hash, group) == kNullBlock);
  hashes_[index(id)] = hash;
  groups_[index(id)] = static_cast<std::int16_t>(group);
  std::size_t i = home(hash, group);
  while (table_[i] != kNullBlock) i = (i + 1) & mask_;
  table_[i] = id;
  ++size_;
}

void PrefixCache::erase(BlockId id) {
  CHECK(holds(id));
  std::size_t hole = home(hashes_[index(id)], groups_[index(id)]);
  while (table_[hole] != id) hole = (hole + 1) & mask_;
  // Close the hole: move a later entry into it if that entry's probe sequence passes the hole.
  for (std::size_t i = (hole + 1) & mask_; table_[i] != kNullBlock; i = (i + 1) & mask_) {
    const std::size_t start = home(hashes_[index(table_[i])], groups_[index(table_[i])]);
    if (((i - start) & mask_) >= ((i - hole) & mask_)) {
      table_[hole] = table_[i];
      hole = i;
    }
  }
  table_[hole] = kNullBlock;
  groups_[index(id)] = -1;
  --size_;
}

void PrefixCache::move(BlockId from, BlockId to) {
  const Hash128 hash = hashes_[index(from)];
  const std::int32_t group = groups_[index(from)];
  erase(from);
  insert(to, hash, group);
}

void PrefixCache::check_integrity() const {
  std::int32_t listed = 0;
  for (std::size_t i = 0; i < table_.size(); ++i) {
    const BlockId id = table_[i];
    if (id == kNullBlock) continue;
    ++listed;
    CHECK(holds(id));
    // Reachable from its home without meeting a hole or another block of its name.
    CHECK(find(hashes_[index(id)], groups_[index(id)]) == id);
  }
  std::int32_t named = 0;
  for (const std::int16_t group : groups_) named += group >= 0 ? 1 : 0;
  CHECK(listed == named && named == size_);
}

}  // namespace sluice
