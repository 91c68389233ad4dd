#include "serverless/artifact.h"

#include "base/check.h"

namespace sluice {

std::int32_t Artifacts::add(std::int32_t artifact, std::int32_t memory, std::int64_t bytes,
                            double saved_s, std::initializer_list<std::int32_t> needed) {
  const auto position = static_cast<std::int32_t>(placements.size());
  placements.push_back({artifact, memory, bytes, saved_s, static_cast<std::int32_t>(needs.size()),
                        static_cast<std::int32_t>(needed.size())});
  needs.insert(needs.end(), needed.begin(), needed.end());
  return position;
}

void Artifacts::check_integrity() const {
  for (std::size_t i = 0; i < placements.size(); ++i) {
    const Placement& placement = placements[i];
    CHECK(placement.artifact >= 0 && placement.artifact < num_artifacts);
    CHECK(placement.memory >= 0 && placement.memory < num_memories);
    CHECK(placement.bytes >= 0 && placement.saved_s >= 0);
    for (const std::int32_t need : needs_of(placement)) {
      CHECK(need >= 0 && static_cast<std::size_t>(need) < i);
    }
  }
}

}  // namespace sluice
