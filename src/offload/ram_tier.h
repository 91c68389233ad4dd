// RamTier: a tier in this machine's memory, for `--kv-ram`. For a device that computes in the same
// memory it packs blocks (block_pack.h), because whole blocks would be KV memory under another
// name. For a GPU it keeps them as they are.
//
// Packing must gain: after the first blocks, and again after each window of more, the tier compares
// the bytes of blocks with the memory that they took. Below Options::least_gain it stops for the
// rest of the process: it frees its memory, takes no more saves, and loads end with kNotFound. One
// line in the log says so, with the gain.
//
// When memory is full, the block that was used least recently makes room. The tier has more page
// numbers than blocks may fit, since the gain is not known before; take_lost() reports the blocks
// that made room, and a load that began before that ends with kNotFound. Nothing survives the
// process. One thread of its own packs, copies and checks (MoveQueue). Limits: Options. Owner: the
// engine's executor. Threads: KvTier's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "offload/keeping_tier.h"

namespace sluice {

class RamTier final : public KeepingTier {
 public:
  struct Options {
    std::int64_t max_bytes = 0;  // of all blocks; bookkeeping takes some 0.2 % beside it
    std::uint64_t block_bytes = 0;
    bool packs = false;  // REQUIRES: blocks of BF16
    int save_rests = 0;  // SavePace
    // With `packs`.
    double least_gain = 1.2;
    std::int64_t sample_blocks = 32;    // before the first decision
    std::int64_t window_blocks = 1024;  // between later ones
  };

  // kInvalidArgument: no room for a block. kResourceExhausted: the system has no such memory.
  static Result<std::unique_ptr<RamTier>> open(const Options& options);
  ~RamTier() override;  // ends the move that has begun; drops the others

  std::int32_t num_pages() const override;
  std::vector<TierPage> take_stored() override { return {}; }
  bool accepts_saves() const override;
  void save(std::uint64_t id, const TierPage& page, std::span<const std::byte> block) override;
  void load(std::uint64_t id, const TierPage& page, std::span<std::byte> block) override;
  void keep(std::int32_t page) override;
  void release(std::int32_t page) override;
  void touch(std::int32_t page) override;
  void erase(std::int32_t page) override;
  void poll(std::vector<TierMove>& ended) override;
  void take_lost(std::vector<TierPage>& lost) override;
  void wait(Duration at_most) override;
  Status flush(Duration at_most) override;
  std::int64_t memory_bytes() const override;

 private:
  struct Impl;
  explicit RamTier(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
