#include "engine/graph_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

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

Result<OpList> GraphCache::list_ops(Device& device, std::size_t index, Forward forward) const {
  device.ops().products().clear();
  RETURN_IF_ERROR(device.begin_capture());
  forward(capacity_for(capacities_[index]));
  return device.end_listing();
}

Status GraphCache::make_graph(Device& device, OpList list, Entry& entry) {
  ASSIGN_OR_RETURN(entry.graph, device.make_graph(std::move(list)));
  // A device notes its products while it lists ops or while it makes the graph.
  entry.products = device.ops().products();
  ++num_captured_;
  return {};
}

Status GraphCache::capture(Device& device, std::size_t index, Entry& entry, Forward forward) {
  ASSIGN_OR_RETURN(OpList list, list_ops(device, index, forward));
  return make_graph(device, std::move(list), entry);
}

Status GraphCache::capture_all(Device& device, ForwardVariant variant, Forward forward) {
  if (mode_ == GraphMode::kEager) return {};
  for (std::size_t i = 0; i < capacities_.size(); ++i) {
    if (entry(i, variant).graph != nullptr) continue;
    RETURN_IF_ERROR(capture(device, i, entry(i, variant), forward));
  }
  return {};
}

Result<std::string> GraphCache::restore_all(Device& device, ForwardVariant variant,
                                            std::vector<OpList> stored, Forward forward) {
  CHECK(mode_ == GraphMode::kReplay);
  std::string difference;
  if (stored.size() != capacities_.size()) {
    difference = fmt::format("{} lists of ops, expected {}", stored.size(), capacities_.size());
  }
  for (std::size_t i = 0; i < capacities_.size(); ++i) {
    Entry& entry = this->entry(i, variant);
    if (entry.graph != nullptr) continue;
    ASSIGN_OR_RETURN(OpList listed, list_ops(device, i, forward));
    if (difference.empty()) {
      difference = first_difference(stored[i], listed);
      if (difference.empty()) {
        listed = std::move(stored[i]);
      } else {
        difference.insert(0, fmt::format("capacity {}: ", capacities_[i]));
      }
    }
    RETURN_IF_ERROR(make_graph(device, std::move(listed), entry));
  }
  return difference;
}

std::vector<const OpList*> GraphCache::lists(ForwardVariant variant) const {
  std::vector<const OpList*> lists;
  for (std::size_t i = 0; i < capacities_.size(); ++i) {
    CHECK(entry(i, variant).graph != nullptr);
    lists.push_back(&entry(i, variant).graph->ops());
  }
  return lists;
}

Status GraphCache::run(Device& device, std::int32_t num_tokens, ForwardVariant variant,
                       Forward forward) {
  const std::size_t index = index_for(num_tokens);
  Entry& entry = this->entry(index, variant);
  if (mode_ == GraphMode::kEager) {
    run_eagerly(device, num_tokens, variant, forward);
    return {};
  }
  if (entry.graph == nullptr) RETURN_IF_ERROR(capture(device, index, entry, forward));
  return device.replay(*entry.graph);
}

Status GraphCache::run_traced(Device& device, const TracedBatch& batch, ForwardVariant variant,
                              Forward forward, StepTrace& trace) {
  const std::size_t index = index_for(batch.tokens);
  Entry& entry = this->entry(index, variant);
  // Several tokens of one sequence are of a prompt.
  const bool has_prompt = batch.tokens > batch.seqs;
  if (mode_ == GraphMode::kReplay) {
    if (entry.graph == nullptr) RETURN_IF_ERROR(capture(device, index, entry, forward));
    trace.run(entry.graph->ops(), device.ops(), batch.tokens, batch.seqs, has_prompt);
    return {};
  }
  ASSIGN_OR_RETURN(const OpList list, list_ops(device, index, forward));
  entry.products = device.ops().products();
  trace.run(list, device.ops(), batch.tokens, batch.seqs, has_prompt);
  return {};
}

void GraphCache::run_eagerly(Device& device, std::int32_t num_tokens, ForwardVariant variant,
                             Forward forward) {
  const std::size_t index = index_for(num_tokens);
  ProductRows& products = device.ops().products();
  products.clear();
  forward(capacity_for(capacities_[index]));
  entry(index, variant).products = products;
}

}  // namespace sluice
