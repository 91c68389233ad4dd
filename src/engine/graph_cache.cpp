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
  for (std::vector<Entry>& entries : entries_) entries.resize(capacities_.size());
}

std::size_t GraphCache::index_for(std::int32_t num_tokens) const {
  const auto found = std::lower_bound(capacities_.begin(), capacities_.end(), num_tokens);
  CHECK(found != capacities_.end());
  return static_cast<std::size_t>(found - capacities_.begin());
}

const ProductRows& GraphCache::products(std::int32_t num_tokens, ForwardVariant variant) const {
  return entry(index_for(num_tokens), variant).products;
}

const Graph* GraphCache::graph(std::int32_t num_tokens, ForwardVariant variant) const {
  return entry(index_for(num_tokens), variant).graph.get();
}

GraphCache::Entry& GraphCache::entry(std::size_t index, ForwardVariant variant) {
  return entries_[static_cast<std::size_t>(variant)][index];
}

const GraphCache::Entry& GraphCache::entry(std::size_t index, ForwardVariant variant) const {
  return entries_[static_cast<std::size_t>(variant)][index];
}

// A step of few tokens has no more rows than tokens, and no more logits.
StepCapacity GraphCache::capacity_for(std::int32_t tokens) const {
  return {tokens, std::min(tokens, largest_.seqs), std::min(tokens, largest_.logits)};
}

Status GraphCache::capture(Device& device, std::size_t index, Entry& entry, Forward forward) {
  ProductRows& products = device.ops().products();
  products.clear();
  RETURN_IF_ERROR(device.begin_capture());
  forward(capacity_for(capacities_[index]));
  ASSIGN_OR_RETURN(entry.graph, device.end_capture());
  entry.products = products;
  ++num_captured_;
  return {};
}

Status GraphCache::capture_all(Device& device, ForwardVariant variant, Forward forward) {
  if (mode_ == GraphMode::kEager) return {};
  for (std::size_t i = 0; i < capacities_.size(); ++i) {
    if (entry(i, variant).graph != nullptr) continue;
    RETURN_IF_ERROR(capture(device, i, entry(i, variant), forward));
  }
  return {};
}

Status GraphCache::run(Device& device, std::int32_t num_tokens, ForwardVariant variant,
                       Forward forward) {
  const std::size_t index = index_for(num_tokens);
  Entry& entry = this->entry(index, variant);
  if (mode_ == GraphMode::kEager) {
    ProductRows& products = device.ops().products();
    products.clear();
    forward(capacity_for(capacities_[index]));
    entry.products = products;
    return {};
  }
  if (entry.graph == nullptr) RETURN_IF_ERROR(capture(device, index, entry, forward));
  return device.replay(*entry.graph);
}

}  // namespace sluice
