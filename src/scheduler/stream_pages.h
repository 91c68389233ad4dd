// StreamPages: KV blocks on their way between the prefix cache, with the tier below it, and the
// file of a streamed sequence (stream_lane.h). There is one file at a time.
//
// Fetching: before a sequence takes its windows, the blocks of its prompt that memory or the tier
// have are loaded into free blocks of memory and written to its file from there, a few at a time.
// It looks once. A block that cannot be loaded ends this: the rest is computed.
//
// Keeping: pieces that the sequence has computed are read from its file into free blocks of memory
// and get their names by content. Then they are cached blocks like others: they are saved to the
// tier, and may be evicted afterwards. The next ones follow when no block waits to be saved, so
// none is evicted before. When the sequence has ended, its file stays until all blocks are kept and
// saved, because the windows of the next one would evict them; at most kMostKeeping longer. Blocks
// that are not to be saved are not kept.
//
// Owner: BlockPager. Threads: the engine's. Allocation: when blocks move.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/hash128.h"
#include "kv/kv_manager.h"
#include "kv/stream_shape.h"
#include "request/sequence.h"
#include "scheduler/batch_plan.h"
#include "scheduler/paging_costs.h"
#include "scheduler/transfer.h"

namespace sluice {

enum class StreamFetch : std::uint8_t {
  kDone,      // Sequence::streamed_kept tokens are in its file
  kWaits,     // for transfers
  kNoMemory,  // for blocks; nothing has changed
};

class StreamPages {
 public:
  static constexpr std::int32_t kMostBlocks = 64;  // that move at once
  static constexpr Duration kMostKeeping = std::chrono::seconds(60);

  // REQUIRES: kv outlives this.
  explicit StreamPages(KvManager& kv) : kv_(kv) {}

  // Fetches blocks for a sequence without a slot; called again until it is done. REQUIRES: the
  // sequence has the file, or keeps_file() is false.
  StreamFetch fetch(Sequence& sequence, const StreamShape& shape, Headroom headroom,
                    TransferId& next_id, BatchPlan& plan);
  // Computes the rest. REQUIRES: nothing is under way.
  void stop_fetch() { stops_fetch_ = true; }

  // The sequence gets its first slot.
  void begin(const Sequence& sequence);
  // Reads the next blocks to be kept, and leaves `spare` available blocks.
  void keep(const StreamShape& shape, bool accepted, std::int32_t spare, TimePoint now,
            TransferId& next_id, BatchPlan& plan);
  // A sequence has ended; `names`: of the blocks in its file.
  void end(const Sequence& sequence, std::span<const Hash128> names);
  // The same, and no block of it is kept any more. `wrong`: neither are those from before.
  void forget(const Sequence& sequence, bool wrong);
  void drop_kept() { keeps_ = false; }

  // The sequence that has the file, or had it last; 0: none.
  SequenceId file() const { return file_; }
  // Whether the sequence of the file has ended, and the file is still in use.
  bool keeps_file() const { return ended_ && (keeps_ || busy()); }
  // The sequence whose file is not in use any more, once.
  std::optional<SequenceId> take_ended();

  // The transfers that are under way.
  bool busy() const { return under_way_ > 0; }
  bool loads() const { return kind_ == TransferKind::kLoadBlock; }
  bool owns(TransferId id) const { return id >= first_ && id < first_ + num_transfers_; }
  // REQUIRES: owns(result.id).
  void complete(const TransferResult& result);
  // A step has computed tokens of a prompt.
  void note_chunk(std::int64_t tokens, Duration took) { costs_.note_chunks(tokens, took); }

  std::int32_t num_held() const { return static_cast<std::int32_t>(blocks_.size()); }

 private:
  void look(Sequence& sequence, const StreamShape& shape, TimePoint now);
  void end_fetch(TimePoint now);
  void start(TransferKind kind, TransferId& next_id, BatchPlan& plan);
  void start_write(TransferId& next_id, BatchPlan& plan);
  void end_load(const TransferResult& result);
  void end_loads();
  void end_reads();
  void let_go();
  bool is_kept(std::int32_t group, const StreamShape& shape) const;
  std::int32_t end_of_kept(const StreamShape& shape) const;
  std::span<const Hash128> names() const;

  KvManager& kv_;
  SequenceId file_ = 0;
  std::int32_t file_blocks_ = 0;
  bool ended_ = false;  // the file's sequence

  // The blocks that move: `blocks_` are held, transfers [first_, first_ + num_transfers_).
  std::vector<PagedBlock> blocks_;
  TransferKind kind_ = TransferKind::kLoadBlock;
  TransferId first_ = 0;
  TransferId num_transfers_ = 0;
  std::int32_t under_way_ = 0;
  bool failed_ = false;  // one of them

  // Fetching, in tokens.
  Sequence* fetches_ = nullptr;  // null: none, or it has ended
  std::int32_t found_ = 0;
  std::int32_t fetched_ = 0;
  bool stops_fetch_ = false;
  std::int32_t fetched_next_ = 0;  // when these blocks have moved
  TimePoint fetch_began_;
  PagingCosts costs_;  // of streamed prompts, whose blocks pass through all levels and the file

  // Keeping, in blocks.
  bool keeps_ = false;
  const Sequence* source_ = nullptr;  // null: it has ended
  std::vector<Hash128> names_;        // then
  BlockOwner owner_;
  std::int32_t kept_from_ = 0;
  std::int32_t kept_ = 0;
  std::int32_t kept_next_ = 0;
  std::optional<TimePoint> keeps_until_;
};

}  // namespace sluice
