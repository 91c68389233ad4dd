#include "device/cpu/recording_ops.h"

namespace sluice {

Status RecordingOps::begin_capture() {
  if (capturing())
    return internal_error("capture: a capture is in progress already, and captures do not nest");
  list_.emplace();
  return {};
}

Result<OpList> RecordingOps::end_capture() {
  if (!capturing()) return internal_error("capture: none is on");
  OpList list = *std::move(list_);
  list_.reset();
  return list;
}

Status RecordingOps::replay(const OpList& list) {
  if (capturing()) return internal_error("replay: not possible while capturing");
  list.run(*target_);
  return {};
}

AttentionPlanSize RecordingOps::attention_plan_size(const AttentionPlanLimits& limits) const {
  return target_->attention_plan_size(limits);
}

std::int64_t RecordingOps::plan_attention(const AttentionPlanParams& p) {
  return target_->plan_attention(p);
}

Work RecordingOps::attention_work(const AttentionPlanParams& p) const {
  return target_->attention_work(p);
}

}  // namespace sluice
