// KvManager: the KV blocks that each running sequence holds, for every group of layers. It handles
// block ids only: the engine owns the memory, and the step's plan carries the copies and table
// changes.
//
// A slot (0 to max_num_seqs - 1) has one block table per group. Tables are append-only. Tables
// share blocks by reference count: through the prefix cache (full blocks only) and between the
// choices of one request (fork). A shared block is copied before it is written. Sliding groups free
// blocks that have left the window; the table entries then point to the null block.
//
// Admission promises all the blocks that the prompt will need at the same time (in a sliding group
// at most a window and a chunk). A promised block stays free until its slot takes it, but no other
// slot may take it, so a running prefill does not run out of memory. One exception: a sliding
// group's block that other sequences share is not freed when it leaves the window.
//
// Blocks of warm prompts are held: from the moment they are computed or adopted they count as used
// and are not evicted. Blocks of pins are held in the same way. Requests come first: the scheduler
// lets all held blocks go when a sequence could otherwise not run. That ends the holds of warm
// prompts. A pinned block is held again when a sequence computes, loads or uses it.
//
// Full blocks have names. The partial block of a sequence that is displaced may get one too, its
// tail: no other sequence knows that name, and the next write to the block removes it.
//
// A tier below (tier_index.h) keeps copies of named blocks. When the last holder of a named block
// leaves, the block joins a line of blocks to save, unless the tier has a copy; it may be taken
// before its turn comes. Names are found in both places: begin_loads() takes blocks for those that
// are only below. A block that is being loaded or saved is held until the end of its transfer.
//
// Owner: the engine, lent to the scheduler. Threads: the engine's thread only.
// Allocation: none after construction, except hold() and pin(), and with a tier forget() and
// forget_names().
// "Not enough blocks" is a value, never an error.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/block_owner.h"
#include "base/hash128.h"
#include "kv/block_changes.h"
#include "kv/block_names.h"
#include "kv/block_pool.h"
#include "kv/held_blocks.h"
#include "kv/paged_block.h"
#include "kv/prefix_cache.h"
#include "kv/tier_index.h"

namespace sluice {

enum class PrefixCaching : std::uint8_t { kOn, kOff };

struct KvOptions {
  std::int32_t block_size = 16;
  std::vector<std::int32_t> group_windows;  // by group (kv_layout.h); 0 = full attention
  std::int32_t num_blocks = 0;              // in memory at the start, the null block included
  std::int32_t max_blocks = 0;              // after growth; 0 = num_blocks
  // The engine always has so many, whatever limit it is given: a sequence that needs more is
  // refused, so that no later limit ends it. 0: a sequence may need all that the limit allows.
  std::int32_t least_blocks = 0;
  std::int32_t max_num_seqs = 0;
  std::int32_t max_model_len = 0;
  std::int32_t max_query_len = 0;  // most tokens of one sequence in one step: the token budget
  double watermark = 0.01;         // least share of the blocks that admission leaves free
  PrefixCaching prefix_caching = PrefixCaching::kOn;
  // Blocks in one chunk of memory: KV memory grows and shrinks by whole chunks, or to max_blocks.
  // 0: the size is fixed.
  std::int32_t chunk_blocks = 0;
  // Pages of the tier below; 0: there is none.
  std::int32_t tier_pages = 0;
  TierEvictionOptions tier_eviction = {};
};

// Sums since the start over admissions with hashes, including admissions after a preemption.
struct PrefixStats {
  std::int64_t queried_tokens = 0;  // of the admitted sequences
  std::int64_t hit_tokens = 0;      // the part of them found in the cache
};

// The blocks that an admission must leave untouched.
struct Headroom {
  std::int32_t blocks = 0;  // unpromised free blocks that stay for running sequences
  // Cached blocks are not evicted and do not count as free: memory can grow instead.
  bool spare_cached = false;
};

enum class LoadStart : std::uint8_t {
  kStarted,
  kUnderWay,  // another load brings a wanted block
  kNoMemory,
};

// Blocks [first, end) of a prompt.
struct BlockRange {
  std::int32_t first = 0;
  std::int32_t end = INT32_MAX;
};

// A block of a prompt: the block's index in the prompt, its group of layers, and its id (null: it
// is not in memory).
struct BlockPlace {
  std::int32_t index = 0;
  std::int32_t group = 0;
  BlockId id = kNullBlock;
};

// The blocks of a prefix that only the tier has.
struct BlocksBelow {
  std::array<std::int64_t, kTierLevels> tokens{};  // at each level, by tokens_of()
  std::int32_t first_slow = INT32_MAX;             // index in the prompt; INT32_MAX: none is slow
};

// The blocks that a prefix needs, by place. A block that is in memory and in a tier counts as in
// memory.
struct PinnedBlocks {
  std::int32_t all = 0;
  std::int32_t in_memory = 0;
  std::int32_t in_tier = 0;
};

class KvManager {
 public:
  explicit KvManager(const KvOptions& options);

  std::int32_t block_size() const { return options_.block_size; }
  std::int32_t num_groups() const { return num_groups_; }
  // The tokens of this number of blocks, those of all groups counted together.
  std::int64_t tokens_of(std::int32_t blocks) const {
    return std::int64_t{blocks} * options_.block_size / num_groups_;
  }
  std::int32_t max_blocks_per_seq() const { return max_blocks_per_seq_; }  // width of a table
  const KvOptions& options() const { return options_; }

  // Blocks, the null block not counted: used + free = all; cached ones may be used or free.
  std::int32_t num_usable_blocks() const { return pool_.num_blocks() - 1; }
  std::int32_t num_free_blocks() const { return pool_.num_free(); }
  std::int32_t num_used_blocks() const { return pool_.num_used(); }
  std::int32_t num_cached_blocks() const { return cache_.size(); }
  std::int32_t num_free_cached_blocks() const { return free_cached_; }
  // Free blocks that are neither promised to a sequence nor needed as the target of a block that
  // must move down.
  std::int32_t num_available_blocks() const {
    return pool_.num_free() - total_promised_ - pool_.num_above();
  }
  // Available blocks without cached content. Negative when promises cover cached blocks.
  std::int32_t num_fresh_blocks() const { return num_available_blocks() - free_cached_; }
  // Used or promised blocks: the fewest usable blocks with which these sequences can run.
  std::int32_t num_held_blocks() const { return pool_.num_used() + total_promised_; }
  // KvOptions::watermark as a number of blocks.
  std::int32_t watermark_blocks() const;
  // The blocks that the last failed admission or extension lacked.
  std::int32_t last_shortage() const { return last_shortage_; }
  // Blocks that a slot needs for its first `tokens` tokens beyond those that it has or was
  // promised. A sliding group counts as one block, because it frees about as many as it takes.
  std::int32_t blocks_to_reach(std::int32_t slot, std::int32_t tokens) const;
  // Blocks that release() makes available, at most: others may share some of them.
  std::int64_t most_released(std::int32_t slot) const;
  // Blocks that a sequence of `tokens` needs when it runs alone, at most.
  std::int64_t blocks_needed(std::int64_t tokens) const;

  const PrefixStats& prefix_stats() const { return prefix_stats_; }

  // The length in tokens of the longest prefix with these names, at most `max_tokens`, whose blocks
  // are cached in every group.
  std::int32_t match(const BlockNames& names, std::int32_t max_tokens) const;

  // Gives an empty slot to a sequence of `num_tokens` known tokens. Shares cached blocks (for at
  // most num_tokens - 1 tokens: one is always computed) and promises the blocks for the rest, or
  // for `reserved` tokens if that is more. Returns the number of cached tokens, or nothing without
  // a change when memory is short.
  std::optional<std::int32_t> admit(std::int32_t slot, const BlockNames& names,
                                    std::int32_t num_tokens, Headroom headroom,
                                    BlockChanges& changes, std::int32_t reserved = 0);

  // The available blocks that admit() would take or promise with these arguments.
  std::int64_t blocks_to_admit(const BlockNames& names, std::int32_t num_tokens,
                               std::int32_t reserved) const;

  // Promises what the slot's first `tokens` tokens need beyond what it has, so that extend() up to
  // there finds blocks; only the copy of a block shared after this call may lack one. Returns false
  // without a change when memory is short.
  bool promise(std::int32_t slot, std::int32_t tokens, Headroom headroom);

  // Gives an empty slot `count` blocks that are its own, for a sequence whose KV is streamed
  // through them (stream_shape.h). They are in the table of the first group; extend() takes none,
  // and publish() names none. Returns false without a change when memory is short. REQUIRES: count
  // <= max_blocks_per_seq().
  bool admit_window(std::int32_t slot, std::int32_t count, Headroom headroom,
                    BlockChanges& changes);

  // Whether `parent` still holds all of its first `tokens` tokens that position `tokens` can see.
  bool can_fork(std::int32_t parent, std::int32_t tokens) const;
  // Shares the blocks of the first `tokens` tokens of `parent` with the empty slot `child`, without
  // a copy. Promises blocks for the rest of `num_tokens` and for the copy of a partial last block,
  // which the child makes before it first writes there. Returns false without a change when memory
  // is short.
  // REQUIRES: can_fork, tokens < num_tokens, the parent has computed `tokens` tokens.
  bool fork(std::int32_t parent, std::int32_t child, std::int32_t tokens, std::int32_t num_tokens,
            Headroom headroom, BlockChanges& changes);

  // Makes positions [first, first + count) of a slot writable: frees blocks that have left the
  // window of `first`, copies shared blocks, takes new ones. Returns false, with no block taken,
  // when memory is short. REQUIRES: `first` is not below an earlier call's window. Within a block
  // this costs one comparison.
  bool extend(std::int32_t slot, std::int32_t first, std::int32_t count, BlockChanges& changes) {
    return first + count <= writable_until_[index(slot)] ||
           extend_blocks(slot, first, count, changes);
  }

  // Names the slot's full blocks among its first `computed` tokens, as far as `hashes` go, so that
  // other sequences may share them. A block whose name another block in use has stays unnamed.
  // `owner`: of blocks that get a name here. REQUIRES: the contents are final.
  void publish(std::int32_t slot, std::span<const Hash128> hashes, std::int32_t computed,
               const BlockOwner& owner = {});
  // Names the slot's last block, which holds tokens up to `computed` and is partial. False: another
  // slot or a transfer uses the block, so it gets no name. REQUIRES: as publish(), and no other
  // sequence uses the name.
  bool publish_tail(std::int32_t slot, Hash128 name, std::int32_t computed,
                    const BlockOwner& owner = {});
  // Forgets the blocks with these names, in memory and in the tier: no sequence looks for them any
  // more.
  void forget_names(std::span<const Hash128> names);
  // The slot's named blocks belong to a request that lets a tier have them, too.
  void allow_saves(std::int32_t slot);

  // Removes the names of a slot's blocks, in memory and in the tier, because their contents are
  // wrong.
  void forget(std::int32_t slot);

  // Empties the slot. Its named blocks stay in the prefix cache until they are reused, the last
  // ones first.
  void release(std::int32_t slot);

  // A slot's block table in a group: entries [0, allocated).
  std::span<const BlockId> table(std::int32_t slot, std::int32_t group) const;
  std::int32_t ref_count(BlockId id) const { return pool_.ref_count(id); }

  // Takes blocks at or above `num_blocks` out of service: none of them is taken any more, cached
  // ones are forgotten, held ones stay valid until they are moved. REQUIRES: 1 <= num_blocks <=
  // max_blocks; to shrink, num_held_blocks() < num_blocks.
  void resize(std::int32_t num_blocks);
  // Held blocks that are out of service.
  std::int32_t num_blocks_above() const { return pool_.num_above(); }
  // Moves at most `limit` of those blocks to free blocks in service, by copies and table changes.
  // REQUIRES: the changes have no copies yet (one of them could use a moved block).
  void move_down(std::int32_t limit, BlockChanges& changes);
  // Drops all cached blocks that neither a sequence nor hold() holds.
  void drop_cached();

  // The blocks that a prompt with these names needs: all of them; in a sliding group those that its
  // next token sees. A block that is in memory has an id.
  std::vector<BlockPlace> needed_blocks(std::span<const Hash128> names) const;
  // The needed blocks that hold() has not been called for yet.
  std::int32_t blocks_to_hold(std::span<const Hash128> names) const;
  // Holds the needed blocks: those in memory now that are not promised to a sequence, the others as
  // soon as a sequence publishes them or adopt() names them. REQUIRES: prefix caching is on.
  void hold(std::span<const Hash128> names);
  // Whether hold() was called for it.
  bool is_wanted(Hash128 name, std::int32_t group) const;
  // A free block becomes the held block of this name; the caller writes its contents before the
  // next plan. Null without a change when memory is short. REQUIRES: hold() was called for the
  // name, and no block has it.
  BlockId adopt(Hash128 name, std::int32_t group);
  // Memory is short: lets go of all held blocks, which are then cached blocks like others, and ends
  // the holds of hold(). Pinned blocks are held again when they are used. False when none was held.
  bool release_holds();
  // Ends the holds of hold(); pins stay.
  void end_warm_holds();

  // Pins the needed blocks, as hold() does, and protects their pages in the tier: at most half of
  // its pages stay protected. Counts: a name stays pinned until each pin() has its unpin().
  // REQUIRES: prefix caching is on.
  void pin(std::span<const Hash128> names);
  // REQUIRES: pin() was called for the same names.
  void unpin(std::span<const Hash128> names);
  PinnedBlocks count_blocks(std::span<const Hash128> names) const;
  std::int32_t num_pinned_blocks() const;  // held now by hold() or pin()

  const TierIndex& tier() const { return tier_; }
  // A block that the tier had when it was opened; called in the order of last use.
  void restore_page(std::int32_t page, Hash128 name, std::int32_t group);
  // The tier has dropped the block of this page, unless the page has another one by now.
  void lose_page(const PagedBlock& lost);
  // match(), with the blocks that only the tier has.
  std::int32_t match_with_tier(const BlockNames& names, std::int32_t max_tokens) const;
  // REQUIRES: match_with_tier() gave `tokens`.
  BlocksBelow blocks_below(const BlockNames& names, std::int32_t tokens) const;
  // Where the tier has the block of a page changes, by what the tier says.
  void set_level(const PageLevel& now) { tier_.set_level(now); }
  // Takes blocks for those blocks of the first `tokens` tokens that only the tier has, and holds
  // those that are in memory (without a page). Appends all of them to `blocks`; the caller ends
  // each load, and when all have ended lets go of each block, the last one first. Without kStarted
  // nothing has changed. `range`: only these of the prompt's blocks. REQUIRES: match_with_tier()
  // gave `tokens`.
  LoadStart begin_loads(const BlockNames& names, std::int32_t tokens, Headroom headroom,
                        Hash128 tenant, std::vector<PagedBlock>& blocks, BlockRange range = {});
  // Takes and holds a free block, for full contents that the caller has elsewhere: block `index` of
  // a prompt. Nothing when none is available.
  std::optional<PagedBlock> begin_fill(Hash128 name, std::int32_t group, std::int32_t index);
  // With `filled` the block gets its name and its place in the line to be saved. It is let go.
  void end_fill(const PagedBlock& block, const BlockOwner& owner, bool filled);
  // The tier's copies of a prefix were used: the first block makes room last.
  void touch_saved(std::span<const Hash128> names);
  // Whether the block is in memory or in the tier.
  bool is_kept(Hash128 name, std::int32_t group) const {
    return cache_.find(name, group) != kNullBlock || tier_.find(name, group) != TierIndex::kNoPage;
  }
  // The block gets its name when the load has succeeded. False: it did not, or the name was
  // forgotten meanwhile. REQUIRES: it has a page.
  bool end_load(const PagedBlock& block, PageLoadEnd end);
  void let_go(const PagedBlock& block);
  // The next block to save, which is held until end_save(). Nothing: there is none, or all blocks
  // or pages are in use, or the block is the target of one of the plan's `copies`.
  std::optional<PagedBlock> begin_save(std::span<const BlockCopy> copies = {});
  void end_save(const PagedBlock& block, bool saved);
  // Appends the pages whose contents must be erased: forget() or forget_names() was called for
  // their blocks. Each is reported once, when nothing is under way for it.
  void take_wrong_pages(std::vector<std::int32_t>& pages);
  bool has_wrong_pages() const { return !wrong_pages_.empty(); }
  // Blocks in line to be saved, at most; some may be in use again.
  std::int32_t num_unsaved() const { return unsaved_size_; }
  // Holds by loads and saves.
  std::int32_t num_paging() const { return num_paging_; }

  // Loads ahead: while a slot computes the front of its prompt, blocks behind it are loaded.
  //
  // The blocks at `index` in `group` of a slot's prompt. One that is in memory is held (without a
  // page), for one that only the tier has a load begins. Either takes the place of a block that was
  // promised to the slot. Nothing without a change: it is in neither, another load brings it, or
  // the slot has no promise left. In a sliding group it takes an available block instead, because
  // the front needs all promised ones until the slot takes over. REQUIRES: the slot has no block
  // there.
  std::optional<PagedBlock> begin_load_ahead(std::int32_t slot, std::int32_t group,
                                             std::int32_t index, Hash128 name, Hash128 tenant);
  bool may_load_ahead(std::int32_t slot, std::int32_t group) const {
    return window(group) > 0 || promised_[group_index(slot, group)] > 0;
  }
  // The slot takes over the blocks at its next indices: those of each group in turn. list_entries()
  // follows in the plan that has the slot's next row. Null blocks stand for those that a sliding
  // group does not see from behind the last one. REQUIRES: all groups have equally many, they are
  // held and their loads have ended; the slot has computed what its table holds.
  void append_loaded(std::int32_t slot, std::span<const PagedBlock> blocks);
  void list_entries(std::int32_t slot, std::int32_t first, std::int32_t count,
                    BlockChanges& changes) {
    for (std::int32_t g = 0; g < num_groups_; ++g) {
      const std::int32_t from = first_before_chunk(g, first);
      emit(slot, g, from, first + count - from, changes);
    }
  }
  // The slot does not take this block over. Where its load failed, the slot is promised another
  // one, unless memory has shrunk.
  void drop_load_ahead(std::int32_t slot, const PagedBlock& block, bool failed);
  // The same while the load is under way: let_go() follows at its end.
  void disown_load_ahead(std::int32_t slot, const PagedBlock& block) {
    --ahead_[group_index(slot, block.group)];
  }

  // CHECKs: reference counts equal table entries, free + used = all, promises are covered, the
  // hash table agrees with the blocks, no block in two states, no cached free block out of service.
  // Linear in the number of blocks.
  void check_integrity() const;

 private:
  static constexpr std::int32_t kAllWritable = INT32_MAX;

  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
  std::size_t group_index(std::int32_t slot, std::int32_t group) const {
    return index(slot) * index(num_groups_) + index(group);
  }
  BlockId* entries(std::int32_t slot, std::int32_t group) {
    return tables_.data() + group_index(slot, group) * index(max_blocks_per_seq_);
  }
  std::int32_t blocks_for(std::int32_t tokens) const {
    return (tokens + options_.block_size - 1) / options_.block_size;
  }
  std::int32_t window(std::int32_t group) const { return options_.group_windows[index(group)]; }

  // The first block that a slot may hold whose last chunk ended at this block.
  std::int32_t first_before_chunk(std::int32_t group, std::int32_t block) const {
    if (window(group) == 0) return block;
    const std::int32_t chunk = block * options_.block_size - options_.max_query_len;
    return std::min(block, first_visible_block(chunk, window(group), options_.block_size));
  }

  // The blocks of an admission: found ones, all others of a table, and what they take.
  struct Admittance {
    std::int32_t cached = 0;   // tokens
    std::int32_t missing = 0;  // table entries
    std::int64_t promised = 0;
    std::int64_t revived = 0;  // free blocks with the wanted contents
  };
  Admittance admittance(const BlockNames& names, std::int32_t num_tokens,
                        std::int32_t reserved) const;
  template <class Present>
  std::int32_t match_names(const BlockNames& names, std::int32_t max_tokens, Present present) const;
  std::int32_t tail_copies(const BlockNames& names, std::int32_t cached, std::int32_t group) const;
  void drop_tail_name(std::int32_t slot, std::int32_t group, std::int32_t first);
  std::int32_t promise_for(std::int32_t group, std::int32_t held, std::int32_t missing) const;
  bool may_take(std::int64_t blocks, std::int64_t revived, Headroom headroom);
  bool extend_blocks(std::int32_t slot, std::int32_t first, std::int32_t count,
                     BlockChanges& changes);
  void free_outside_window(std::int32_t slot, std::int32_t first, BlockChanges& changes);
  std::int32_t blocks_to_take(std::int32_t slot, std::int32_t group, std::int32_t first_block,
                              std::int32_t end_block) const;
  void copy_shared(std::int32_t slot, std::int32_t group, std::int32_t first_block,
                   BlockChanges& changes);
  void append_blocks(std::int32_t slot, std::int32_t group, std::int32_t end_block,
                     BlockChanges& changes);
  BlockId take_block(std::int32_t slot, std::int32_t group);
  template <class Visit>
  void visit_needed(std::span<const Hash128> names, Visit visit) const;
  template <class Visit>
  void visit_prefix(const BlockNames& names, std::int32_t tokens, BlockRange range,
                    Visit visit) const;
  void hold_block(BlockId id, Hash128 name, std::int32_t group);
  void check_held() const;
  bool let_go_of(HeldBlock& held);
  bool is_pinned(BlockId id) const;
  void drop_name(BlockId id);
  void give_name(BlockId id, Hash128 hash, std::int32_t group, const BlockOwner& owner,
                 std::int32_t depth, std::int32_t tail_tokens = 0);
  bool give_back(BlockId id);
  ReuseOrder note_unused(BlockId id);
  void line_up(BlockId id);
  void hold_for_paging(BlockId id);
  void leave_window(std::int32_t slot, std::int32_t group, std::int32_t begin);
  BlockId empty_block();
  bool has_tier() const { return tier_.num_pages() > 0; }
  BlockId moved(BlockId id, std::int32_t& moves_left, BlockChanges& changes);
  void emit(std::int32_t slot, std::int32_t group, std::int32_t first, std::int32_t count,
            BlockChanges& changes);

  KvOptions options_;
  std::int32_t num_groups_ = 0;
  std::int32_t max_blocks_per_seq_ = 0;
  BlockPool pool_;
  PrefixCache cache_;
  HeldBlocks held_;

  std::vector<BlockId> tables_;  // [slots][groups][max_blocks_per_seq]
  // By slot.
  std::vector<std::int32_t> allocated_;  // table entries in use, the same for every group
  // Positions below it need no work before a write; kAllWritable for a window.
  std::vector<std::int32_t> writable_until_;
  std::vector<std::int32_t> target_;     // table entries the admitted tokens need
  std::vector<std::int32_t> published_;  // entries that publish() has handled
  // By slot and group.
  std::vector<std::int32_t> first_held_;  // entries before it are null
  std::vector<std::int32_t> promised_;    // free blocks set aside for it
  std::vector<std::int32_t> ahead_;       // blocks that loads ahead hold for it
  std::int32_t total_promised_ = 0;
  std::int32_t free_cached_ = 0;  // free blocks that have a name
  std::int32_t last_shortage_ = 0;
  TierIndex tier_;
  // With a tier. By block: holds by loads and saves, whether it is in line to be saved, the owner,
  // and the tokens of a partial block.
  std::vector<std::int32_t> paging_;
  std::vector<BlockOwner> owners_;         // valid for named blocks
  std::vector<std::int32_t> tail_tokens_;  // the same; 0: the block is full
  std::vector<std::int32_t> depths_;       // the same: of the last block used with it
  std::vector<std::uint8_t> in_line_;
  std::vector<BlockId> unsaved_;  // the line, a ring
  std::int32_t unsaved_first_ = 0;
  std::int32_t unsaved_size_ = 0;
  std::int32_t num_paging_ = 0;
  std::vector<std::int32_t> wrong_pages_;
  std::vector<BlockId> moved_to_;  // by block, during move_down(); otherwise null
  PrefixStats prefix_stats_;
};

// `present(name, group)`: whether the block is there.
template <class Present>
std::int32_t KvManager::match_names(const BlockNames& names, std::int32_t max_tokens,
                                    Present present) const {
  const std::int32_t size = options_.block_size;
  std::int32_t blocks = std::min(max_tokens / size, static_cast<std::int32_t>(names.full.size()));
  // Groups may find prefixes of different lengths, so repeat with the shortest until all agree. A
  // full group accepts every shorter prefix, so this ends after few rounds.
  for (std::int32_t before = -1; before != blocks;) {
    before = blocks;
    for (std::int32_t g = 0; g < num_groups_; ++g) {
      blocks = match_blocks(window(g), size, blocks,
                            [&](std::int32_t b) { return present(names.full[index(b)], g); });
    }
    if (num_groups_ == 1) break;
  }
  const std::int32_t found = blocks * size;
  if (names.tail_end <= found || names.tail_end > max_tokens) return found;
  const std::int32_t tail = names.tail_end / size;
  for (std::int32_t g = 0; g < num_groups_; ++g) {
    if (!present(names.tail, g)) return found;
    const std::int32_t first = first_visible_block(names.tail_end, window(g), size);
    for (std::int32_t b = first; b < tail; ++b) {
      if (!present(names.full[index(b)], g)) return found;
    }
  }
  return names.tail_end;
}

}  // namespace sluice
