// TierLevel: where a tier has a block. Two tiers behind one interface (`--kv-ram` before
// `--kv-disk`) have two levels, whose loads run beside each other; all pages of a tier alone are
// kSlow. It is an estimate for costs: a load takes the block from where it is. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice {

enum class TierLevel : std::uint8_t { kSlow, kFast };

constexpr std::size_t kTierLevels = 2;

// The block of this page is at this level from now on.
struct PageLevel {
  std::int32_t page = 0;
  TierLevel level = TierLevel::kSlow;
};

}  // namespace sluice
