// GraphCache: captured forward passes, one per token capacity (1, 2, 4, ... up to the largest step)
// and variant. capture_all() captures them before the first step, so that no request waits for it;
// a graph that is missing is captured by the step that needs it. A step runs from the graph of the
// smallest capacity that holds its tokens. In eager mode the step runs the forward pass for the
// same capacity, so that both modes compute the same bits even if a device chooses kernels by
// capacity.
// Owner: the model runner. Threads: the engine's thread. Allocates only when it captures.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "device/device.h"
#include "engine/step_trace.h"
#include "model/decoder.h"

namespace sluice {

enum class GraphMode : std::uint8_t { kReplay, kEager };

class GraphCache {
 public:
  // Calls the ops of a forward pass for a capacity.
  using Forward = FunctionRef<void(const StepCapacity&)>;

  GraphCache(GraphMode mode, const StepCapacity& largest);

  // Captures the graphs of a variant for all capacities, without running them. Does nothing in
  // eager mode.
  Status capture_all(Device& device, ForwardVariant variant, Forward forward);

  // As capture_all(), from lists that an earlier process stored, by index in capacities(). Each
  // must equal the list of the forward now. Returns the first difference, or nothing; from a
  // difference on, graphs are made of the forward's own lists. REQUIRES: not in eager mode.
  Result<std::string> restore_all(Device& device, ForwardVariant variant,
                                  std::vector<OpList> stored, Forward forward);

  // The lists of the graphs of a variant, by index in capacities(). REQUIRES: all are captured.
  std::vector<const OpList*> lists(ForwardVariant variant) const;

  // Runs a step of `num_tokens`. `forward` calls the ops of this variant.
  Status run(Device& device, std::int32_t num_tokens, ForwardVariant variant, Forward forward);

  // The same, with the times of ops noted. REQUIRES: the device is not asynchronous.
  struct TracedBatch {
    std::int32_t tokens = 0;
    std::int32_t seqs = 0;
  };
  Status run_traced(Device& device, const TracedBatch& batch, ForwardVariant variant,
                    Forward forward, StepTrace& trace);

  // The same as run() without a graph, whatever the mode.
  void run_eagerly(Device& device, std::int32_t num_tokens, ForwardVariant variant,
                   Forward forward);

  // The matrix products of the forward pass for the capacity of a step of `num_tokens`; empty
  // before that forward pass has run or was captured.
  const ProductRows& products(std::int32_t num_tokens, ForwardVariant variant) const;

  // The graph for a step of `num_tokens`, or null if it has not been captured.
  const Graph* graph(std::int32_t num_tokens, ForwardVariant variant) const;

  // The token capacities, ascending.
  std::span<const std::int32_t> capacities() const { return capacities_; }
  GraphMode mode() const { return mode_; }
  std::int32_t num_captured() const { return num_captured_; }

 private:
  struct Entry {
    std::unique_ptr<Graph> graph;  // null in eager mode and before the capture
    ProductRows products;
  };

  std::size_t index_for(std::int32_t num_tokens) const;
  StepCapacity capacity_for(std::int32_t tokens) const;
  Entry& entry(std::size_t index, ForwardVariant variant);
  const Entry& entry(std::size_t index, ForwardVariant variant) const;
  Result<OpList> list_ops(Device& device, std::size_t index, Forward forward) const;
  Status make_graph(Device& device, OpList list, Entry& entry);
  Status capture(Device& device, std::size_t index, Entry& entry, Forward forward);

  GraphMode mode_;
  StepCapacity largest_;
  std::vector<std::int32_t> capacities_;
  std::array<std::vector<Entry>, kNumForwardVariants> entries_;  // by index in capacities_
  std::int32_t num_captured_ = 0;
};

}  // namespace sluice
