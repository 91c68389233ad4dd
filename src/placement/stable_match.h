// Pairs producers with consumers inside one server, one to one, by deferred acceptance (Gale and
// Shapley, 1962): no producer and consumer would both rather have each other than what they got.
// Both sides rank a partner by the bytes that the pair can lend; among equals a consumer prefers
// the producer with less to spare, and a producer the consumer with the larger need, then the
// lower GPU. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

struct MemoryPair {
  std::int32_t producer = 0;  // indices of `spare_mb`
  std::int32_t consumer = 0;
  std::int64_t lent_mb = 0;
};

// `spare_mb`: of each GPU, negative for consumers. GPUs with 0 are in no pair. The result is
// ordered by consumer.
std::vector<MemoryPair> match_memory(std::span<const std::int64_t> spare_mb);

}  // namespace sluice
