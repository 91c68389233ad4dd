// AdapterMemory: the slots of the arena's adapters region, and the copies that load an adapter into
// one. Images in sealed memory stay where they are: there a load writes the table alone, with
// offsets that lead to them. Otherwise a slot has room for the largest image; a table beside the
// slots holds each slot's entries. The content that a slot holds, or is being loaded with, stays
// alive until the slot's next load. Owner: the model runner. Threads: the engine's thread. Errors
// of a load: its content is gone, because the adapter was unloaded and no request holds it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "adapter/adapter_store.h"
#include "base/result.h"
#include "device/arena.h"
#include "engine/transfers.h"

namespace sluice {

class AdapterMemory final : public TransferSource {
 public:
  // Adds the buffers to `arena`.
  AdapterMemory(SharedAdapters adapters, std::int32_t slots, ArenaPlan& arena);

  // REQUIRES: the arena's adapters region is backed.
  void bind(const Arena& arena);

  Status list_copies(const PlanTransfer& transfer, std::vector<TransferCopy>& copies) override;

  // Offsets count from here, also those of images outside of the arena.
  const std::byte* base() const { return weights_; }
  const LoraEntry* entries() const { return reinterpret_cast<const LoraEntry*>(table_); }

 private:
  struct Slot {
    SharedContent content;
    std::vector<LoraEntry> entries;  // with offsets from base()
  };

  SharedAdapters adapters_;
  bool in_place_ = false;
  std::size_t slot_bytes_ = 0;
  std::size_t table_bytes_ = 0;  // of a slot
  std::vector<Slot> slots_;
  std::byte* weights_ = nullptr;
  std::byte* table_ = nullptr;
};

}  // namespace sluice
