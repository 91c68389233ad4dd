// LentTier: a tier in memory that other processes lend (LentMemory). Blocks are sealed as those of
// a disk tier are (page_format.h), always with AES-256-GCM under a key that only this object has: a
// lender can read what it lends. Records stay in this process, so a page holds what was saved last
// or nothing; bytes that a lender took or changed are a load's error, after they were copied.
//
// A lender may take its memory back at any time, so blocks are lost at any time, and a save may
// find no room. Nothing survives the process. One thread of its own copies, seals and checks
// (MoveQueue). Owner: the engine's executor. Threads: KvTier's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "offload/kv_tier.h"
#include "offload/lent_memory.h"

namespace sluice {

class LentTier final : public KvTier {
 public:
  // `save_rests`: of SavePace; 0: saves do not rest. kInvalidArgument if the memory has no room for
  // a block even when all of it is lent. `memory` is shared with the side that speaks to lenders.
  static Result<std::unique_ptr<LentTier>> open(std::shared_ptr<LentMemory> memory,
                                                std::uint64_t block_bytes, int save_rests = 0);
  ~LentTier() override;  // ends the move that has begun; drops the others

  std::int32_t num_pages() const override;
  std::vector<TierPage> take_stored() override { return {}; }
  bool accepts_saves() const override;
  void save(std::uint64_t id, const TierPage& page, std::span<const std::byte> block) override;
  void load(std::uint64_t id, const TierPage& page, std::span<std::byte> block) override;
  void touch(std::int32_t page) override;
  void erase(std::int32_t page) override;
  void poll(std::vector<TierMove>& ended) override;
  void wait(Duration at_most) override;
  Status flush(Duration at_most) override;

 private:
  struct Impl;
  explicit LentTier(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
