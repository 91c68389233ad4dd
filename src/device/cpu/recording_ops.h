// RecordingOps: the Ops that a CPU device gives to its callers. It runs each op at once on another
// Ops or, during a capture, appends the op to a list. Replaying a graph calls the ops of its list
// again, with the same parameters and the batch that is in memory now. The CPU computes rows of
// matrix products one by one, so there is no padding.
// Owner: the CPU device. Threads: the engine's thread only.
#pragma once

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/result.h"
#include "device/op_list.h"
#include "device/ops.h"

namespace sluice {

class RecordingOps final : public OpsBase<RecordingOps> {
 public:
  explicit RecordingOps(std::unique_ptr<Ops> target) : target_(std::move(target)) {}

  bool capturing() const { return list_.has_value(); }
  Status begin_capture();
  Result<OpList> end_capture();
  Status replay(const OpList& list);

  template <class Params>
  void execute(const Params& p) {
    if constexpr (std::is_same_v<Params, MatmulParams> ||
                  std::is_same_v<Params, GatedMatmulParams>) {
      products().add(p.rows, 1);
    }
    capturing() ? list_->append(p) : target_->run(p);
  }
  AttentionPlanSize attention_plan_size(const AttentionPlanLimits& limits) const override;
  std::int64_t plan_attention(const AttentionPlanParams& p) override;
  Work attention_work(const AttentionPlanParams& p) const override;

 private:
  std::unique_ptr<Ops> target_;
  std::optional<OpList> list_;  // while capturing
};

}  // namespace sluice
