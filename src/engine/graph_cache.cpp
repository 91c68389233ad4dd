#include "engine/graph_cache.h"

#include <algorithm>

#include "base/check.h"

namespace sluice {

GraphCache::GraphCache(GraphMode mode, const StepCapacity& largest)
    : mode_(mode), largest_(largest) {
  for (std::int32_t tokens = 1; tokens < largest.tokens; tokens *= 2) {
    capacities_.push_back(tokens);
  }
  capacities_.push_back(largest.tokens);
  graphs_.resize(capacities_.size());
}

// A step of few tokens has no more rows than tokens, and no more logits.
StepCapacity GraphCache::capacity_for(std::int32_t tokens) const {
  return {tokens, std::min(tokens, largest_.seqs), std::min(tokens, largest_.logits)};
}

Status GraphCache::run(Device& device, std::int32_t num_tokens,
                       FunctionRef<void(const StepCapacity&)> forward) {
  const auto found = std::lower_bound(capacities_.begin(), capacities_.end(), num_tokens);
  CHECK(found != capacities_.end());
  if (mode_ == GraphMode::kEager) {
    forward(capacity_for(*found));
    return {};
  }
  std::unique_ptr<Graph>& graph = graphs_[static_cast<std::size_t>(found - capacities_.begin())];
  if (graph == nullptr) {
    RETURN_IF_ERROR(device.begin_capture());
    forward(capacity_for(*found));
    ASSIGN_OR_RETURN(graph, device.end_capture());
    ++num_captured_;
  }
  return device.replay(*graph);
}

}  // namespace sluice
