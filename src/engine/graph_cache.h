// GraphCache: one captured forward per token capacity (1, 2, 4, ... up to the largest step), made
// when it is first wanted. A step runs from the graph of the smallest capacity that holds its
// tokens. Eagerly it runs the forward for the same capacity, so that both compute the same bit for
// bit, also where a device chooses kernels by capacity.
// Owner: the model runner. Threads: the engine's thread. Allocates only when it captures.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "device/device.h"
#include "model/decoder.h"

namespace sluice {

enum class GraphMode : std::uint8_t { kReplay, kEager };

class GraphCache {
 public:
  GraphCache(GraphMode mode, const StepCapacity& largest);

  // Runs `forward`, which calls ops for a given capacity, for a step of `num_tokens`.
  Status run(Device& device, std::int32_t num_tokens,
             FunctionRef<void(const StepCapacity&)> forward);

  // The matrix products of the forward that such a step has run, for the capacity that it took.
  // REQUIRES: one of that capacity has run.
  const ProductRows& products(std::int32_t num_tokens) const;

  // Token counts that forwards are made for, ascending.
  std::span<const std::int32_t> capacities() const { return capacities_; }
  std::int32_t num_captured() const { return num_captured_; }

 private:
  struct Forward {
    std::unique_ptr<Graph> graph;  // null where it runs eagerly
    ProductRows products;
  };

  std::size_t index_for(std::int32_t num_tokens) const;
  StepCapacity capacity_for(std::int32_t tokens) const;

  GraphMode mode_;
  StepCapacity largest_;
  std::vector<std::int32_t> capacities_;
  std::vector<Forward> forwards_;  // by index in capacities_
  std::int32_t num_captured_ = 0;
};

}  // namespace sluice
