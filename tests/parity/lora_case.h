// LoRA over made-up adapters, for parity, exactness and graph tests: adapters of many ranks in the
// slots of a region whose every other byte is NaN, and batches of tokens that use them.
// Threads: the test's.
#pragma once

#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "device/device.h"
#include "tests/parity/support.h"

namespace sluice::parity {

// One module of one adapter.
struct LoraModule {
  std::int32_t rank = 0;
  float scale = 0.0F;
  std::vector<float> a;      // [rank, K], representable in the table's dtype, as is
  std::vector<float> b;      // [rank, N]
  std::vector<float> gains;  // F32 [2, N]: gains and shifts of DoRA; empty: none
};
using LoraAdapter = std::vector<LoraModule>;

struct LoraShape {
  std::int64_t depth = 1;
  std::vector<std::int64_t> widths;  // of each module
  std::int32_t max_rank = 16;
  DType x = DType::kF32;
  DType dtype = DType::kF32;
};

// Ranks as given, one for each module. Half of the modules have gains.
LoraAdapter random_adapter(const LoraShape& shape, const std::vector<std::int32_t>& ranks,
                           SplitMix64& rng);

// A matmul's LoRA on a device, ready to run with any batch of up to `capacity` tokens. Addresses do
// not change with the batch.
class LoraSite {
 public:
  LoraSite(DeviceMemory& memory, const LoraShape& shape, std::int32_t capacity,
           std::int32_t num_slots, std::size_t region_bytes);

  // Puts an adapter somewhere into the region and its entries into the table.
  void load(std::int32_t slot, const LoraAdapter& adapter, SplitMix64& placement);
  // Takes all adapters out; the region is NaN again.
  void unload_all();

  // x: [tokens, K], out: [tokens, N] before; slots of each token, negative for none. `rng` cuts
  // segments and puts them in any order; without it they are as LoraGrouping has them.
  void set_batch(const std::vector<float>& x, const std::vector<float>& out,
                 const std::vector<std::int32_t>& slots, SplitMix64* rng = nullptr);
  void run(Ops& ops) const;

  const LoraShrinkParams& shrink() const { return shrink_; }
  const LoraExpandParams& expand() const { return expand_; }
  // The rows of the batch's tokens.
  TensorView out() const;

 private:
  DeviceMemory& memory_;
  LoraShape shape_;
  std::int64_t width_ = 0;
  std::int32_t num_slots_ = 0;
  std::int32_t tokens_ = 0;
  std::size_t region_bytes_ = 0;
  std::size_t used_ = 0;  // of the region
  std::byte* region_ = nullptr;
  std::vector<LoraEntry> entries_;
  LoraEntry* device_entries_ = nullptr;
  std::int32_t* list_ = nullptr;
  LoraSegment* segments_ = nullptr;
  std::int32_t* count_ = nullptr;
  LoraShrinkParams shrink_;
  LoraExpandParams expand_;
};

}  // namespace sluice::parity
