// Pooler: makes the vector of a prompt of the hidden states behind the model's final norm. The last
// token's is read in the step that samples after it; a mean is summed over the steps that compute
// the prompt, in the order of its tokens, so that it does not depend on chunks or on the batch.
// Owner: the model runner. Threads: the engine's thread. Allocates when a pooled prompt gets a
// slot.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "request/pooling.h"
#include "scheduler/batch_plan.h"
#include "scheduler/executor.h"
#include "tensor/tensor_view.h"

namespace sluice {

class Pooler {
 public:
  // `width`: of a hidden state. REQUIRES: the device outlives this.
  Pooler(std::int32_t slots, std::int32_t width, Device& device);

  // A sequence begins in a slot, or begins again.
  void assign(std::int32_t slot, Pooling pooling);
  bool pools(std::int32_t slot) const { return slots_[index(slot)].pooling != Pooling::kNone; }

  // Takes a row of a step that has run. The row with logits ends the prompt and gets the vector,
  // unless it failed. `tokens` [T, width]: the hidden states of the step's tokens; `logits`
  // [L, width]: those at its logit positions. REQUIRES: pools(row.slot).
  Status take(const PlanRow& row, const TensorView& tokens, const TensorView& logits,
              RowResult& out, StepResult& result);

 private:
  struct Slot {
    Pooling pooling = Pooling::kNone;
    std::int32_t count = 0;  // tokens in `sum`
    std::vector<double> sum;
  };

  static std::size_t index(std::int32_t slot) { return static_cast<std::size_t>(slot); }
  // The hidden state in row `row`, as F32.
  Status read(const TensorView& states, std::int64_t row);

  Device& device_;
  std::size_t width_;
  std::vector<Slot> slots_;
  std::vector<std::byte> copy_;  // if the host cannot read device memory
  std::vector<float> state_;     // what read() has read
};

}  // namespace sluice
