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
  forwards_.resize(capacities_.size());
}

std::size_t GraphCache::index_for(std::int32_t num_tokens) const {
  const auto found = std::lower_bound(capacities_.begin(), capacities_.end(), num_tokens);
  CHECK(found != capacities_.end());
  return static_cast<std::size_t>(found - capacities_.begin());
}

const ProductRows& GraphCache::products(std::int32_t num_tokens) const {
  return forwards_[index_for(num_tokens)].products;
}

// A step of few tokens has no more rows than tokens, and no more logits.
StepCapacity GraphCache::capacity_for(std::int32_t tokens) const {
  return {tokens, std::min(tokens, largest_.seqs), std::min(tokens, largest_.logits)};
}

Status GraphCache::run(Device& device, std::int32_t num_tokens,
                       FunctionRef<void(const StepCapacity&)> forward) {
  const std::size_t index = index_for(num_tokens);
  const StepCapacity capacity = capacity_for(capacities_[index]);
  Forward& made = forwards_[index];
  ProductRows& products = device.ops().products();
  if (mode_ == GraphMode::kEager) {
    products.clear();
    forward(capacity);
    made.products = products;
    return {};
  }
  if (made.graph == nullptr) {
    products.clear();
    RETURN_IF_ERROR(device.begin_capture());
    forward(capacity);
    ASSIGN_OR_RETURN(made.graph, device.end_capture());
    made.products = products;
    ++num_captured_;
  }
  return device.replay(*made.graph);
}

}  // namespace sluice
