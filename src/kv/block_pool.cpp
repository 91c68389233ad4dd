#include "kv/block_pool.h"

namespace sluice {

BlockPool::BlockPool(std::int32_t num_blocks, std::int32_t max_blocks) {
  CHECK(num_blocks >= 1 && num_blocks <= max_blocks);
  next_.assign(index(max_blocks) + 1, kNullBlock);
  previous_.assign(index(max_blocks) + 1, kNullBlock);
  ref_counts_.assign(index(max_blocks), 0);
  next_[kNullBlock] = middle_end();
  previous_[kNullBlock] = middle_end();
  set_end(num_blocks);
}

void BlockPool::link_after(BlockId position, BlockId id) {
  const BlockId after = next_[index(position)];
  next_[index(position)] = id;
  previous_[index(id)] = position;
  next_[index(id)] = after;
  previous_[index(after)] = id;
  ++num_free_;
}

void BlockPool::unlink(BlockId id) {
  const BlockId before = previous_[index(id)];
  const BlockId after = next_[index(id)];
  next_[index(before)] = after;
  previous_[index(after)] = before;
  --num_free_;
}

BlockId BlockPool::take() {
  CHECK(num_free_ > 0);
  const BlockId id = front();
  unlink(id);
  ref_counts_[index(id)] = 1;
  return id;
}

void BlockPool::add_ref(BlockId id) {
  DCHECK(id > kNullBlock && id < max_blocks());
  if (ref_counts_[index(id)]++ > 0) return;
  CHECK(id < num_blocks_);
  unlink(id);
}

// The block, mark or null block that a block given back in this order follows.
BlockId BlockPool::place_for(ReuseOrder order) const {
  switch (order) {
    case ReuseOrder::kFirst: break;
    case ReuseOrder::kMiddle: return previous_[index(middle_end())];
    case ReuseOrder::kLast: return previous_[kNullBlock];
  }
  return kNullBlock;
}

bool BlockPool::release(BlockId id, ReuseOrder order) {
  CHECK(id > kNullBlock && id < max_blocks() && ref_counts_[index(id)] > 0);
  if (--ref_counts_[index(id)] > 0) return false;
  if (id < num_blocks_) {
    link_after(place_for(order), id);
  } else {
    --num_above_;
  }
  return true;
}

void BlockPool::demote(BlockId id) {
  CHECK(id > kNullBlock && id < num_blocks_ && ref_counts_[index(id)] == 0);
  unlink(id);
  link_after(kNullBlock, id);
}

void BlockPool::set_end(std::int32_t end) {
  CHECK(end >= 1 && end <= max_blocks());
  // From the top down, each to the front: the new blocks are used in ascending order.
  for (BlockId id = end - 1; id >= num_blocks_; --id) {
    if (ref_counts_[index(id)] > 0) {
      --num_above_;
    } else {
      link_after(kNullBlock, id);
    }
  }
  for (BlockId id = end; id < num_blocks_; ++id) {
    if (ref_counts_[index(id)] > 0) {
      ++num_above_;
    } else {
      unlink(id);
    }
  }
  num_blocks_ = end;
}

BlockId BlockPool::move(BlockId from) {
  CHECK(from >= num_blocks_ && ref_counts_[index(from)] > 0);
  const BlockId to = take();
  ref_counts_[index(to)] = ref_counts_[index(from)];
  ref_counts_[index(from)] = 0;
  --num_above_;
  return to;
}

void BlockPool::check_integrity() const {
  std::int32_t listed = 0;
  BlockId before = kNullBlock;
  bool marked = false;
  for (BlockId id = next_[kNullBlock]; id != kNullBlock; id = next_[index(id)]) {
    CHECK(previous_[index(id)] == before);
    before = id;
    if (id == middle_end()) {
      CHECK(!marked);
      marked = true;
      continue;
    }
    CHECK(id > kNullBlock && id < num_blocks_);
    CHECK(ref_counts_[index(id)] == 0);
    CHECK(++listed <= num_free_);
  }
  CHECK(marked);
  CHECK(previous_[kNullBlock] == before);
  CHECK(listed == num_free_);
  std::int32_t unheld = 0;
  for (BlockId id = 1; id < num_blocks_; ++id) {
    CHECK(ref_counts_[index(id)] >= 0);
    unheld += ref_counts_[index(id)] == 0 ? 1 : 0;
  }
  CHECK(unheld == num_free_);
  std::int32_t above = 0;
  for (BlockId id = num_blocks_; id < max_blocks(); ++id) {
    CHECK(ref_counts_[index(id)] >= 0);
    above += ref_counts_[index(id)] > 0 ? 1 : 0;
  }
  CHECK(above == num_above_);
  CHECK(ref_counts_[kNullBlock] == 0);
}

}  // namespace sluice
