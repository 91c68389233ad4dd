#include "engine/adapter_memory.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "model/decoder.h"

namespace sluice {
namespace {

constexpr const char* kAdapterWeights = "model/adapter_weights";
constexpr const char* kAdapterTable = "model/adapter_table";

// Between memories that are not parts of one.
std::int64_t offset_between(const std::byte* from, const std::byte* to) {
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) -
                                   reinterpret_cast<std::uintptr_t>(from));
}

static_assert(kNumLoraModules == static_cast<std::size_t>(kLoraModulesPerLayer));

}  // namespace

AdapterMemory::AdapterMemory(SharedAdapters adapters, std::int32_t slots, ArenaPlan& arena)
    : adapters_(std::move(adapters)),
      in_place_(adapters_->place() == AdapterPlace::kSealed),
      slots_(static_cast<std::size_t>(slots)) {
  const ModelConfig& config = adapters_->config();
  slot_bytes_ = adapters_->format().slot_bytes(config);
  const std::size_t entries = static_cast<std::size_t>(config.num_layers) * kNumLoraModules;
  table_bytes_ = entries * sizeof(LoraEntry);
  for (Slot& slot : slots_) slot.entries.resize(entries);
  if (!in_place_) arena.add(RegionKind::kAdapters, kAdapterWeights, slot_bytes_ * slots_.size());
  arena.add(RegionKind::kAdapters, kAdapterTable, table_bytes_ * slots_.size());
}

void AdapterMemory::bind(const Arena& arena) {
  table_ = arena.address(RegionKind::kAdapters, kAdapterTable);
  // Any fixed address serves images outside of the arena.
  weights_ = in_place_ ? table_ : arena.address(RegionKind::kAdapters, kAdapterWeights);
}

Status AdapterMemory::list_copies(const PlanTransfer& transfer, std::vector<TransferCopy>& copies) {
  const auto index = static_cast<std::size_t>(transfer.place);
  CHECK(weights_ != nullptr && index < slots_.size());
  Slot& slot = slots_[index];
  slot.content = adapters_->content(transfer.resource);
  if (slot.content == nullptr) {
    return unavailable(
        fmt::format("adapter {} was unloaded before a slot was free for it", transfer.resource));
  }
  const AdapterImage& image = slot.content->image;
  CHECK(image.entries.size() == slot.entries.size() && image.bytes.size() <= slot_bytes_);
  const std::int64_t offset = in_place_ ? offset_between(weights_, image.bytes.data())
                                        : static_cast<std::int64_t>(index * slot_bytes_);
  for (std::size_t i = 0; i < image.entries.size(); ++i) {
    slot.entries[i] = image.entries[i];
    slot.entries[i].a += offset;
    slot.entries[i].b += offset;
    if (slot.entries[i].gain != LoraEntry::kNoGain) slot.entries[i].gain += offset;
  }
  copies.push_back({CopyKind::kHostToDevice, table_ + index * table_bytes_,
                    reinterpret_cast<const std::byte*>(slot.entries.data()), table_bytes_});
  if (in_place_) return {};
  copies.push_back(
      {CopyKind::kHostToDevice, weights_ + offset, image.bytes.data(), image.bytes.size()});
  return {};
}

}  // namespace sluice
