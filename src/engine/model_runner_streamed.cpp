// The part of ModelRunner that runs steps of a sequence whose KV is streamed (streamed_steps.h).
#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"
#include "engine/model_runner.h"

namespace sluice {

Result<StreamShape> ModelRunner::use_stream(const KvStream::Options& options) {
  const DeviceTraits& traits = device_.traits();
  if (!traits.host_accessible || traits.asynchronous || options_.steps_in_flight != 1) {
    return unsupported("KV is streamed in the host's memory and by single steps: use --device cpu");
  }
  const StreamShape shape = make_stream_shape(layout_, static_cast<std::int64_t>(options.max_bytes),
                                              KvStream::kAlignment);
  if (shape.max_blocks == 0) {
    return invalid_argument(
        fmt::format("stream={} bytes has no room for {} tokens of {} layers, or blocks of {} "
                    "tokens are no whole "
                    "number of layers; raise it, or use --block-size 16",
                    options.max_bytes, shape.piece_tokens(), shape.num_layers, shape.block_size));
  }
  streamed_.emplace(layout_, shape, options);
  return shape;
}

// Runs without a graph, because each layer waits for its KV. An error of the
// stream ends the row's sequence and not the engine.
Status ModelRunner::run_streamed(Step& step) {
  const BatchPlan& plan = *step.plan;
  CHECK(streamed_ && plan.rows.size() == 1);
  RETURN_IF_ERROR(poll_stream());
  const PlanRow& row = plan.rows.front();
  Status kv = streamed_->begin(row, plan.streamed_blocks, inputs_.table(row.slot),
                               arena_->region_base(RegionKind::kKv), options_.kv_dtype);
  Status weights;
  if (kv) {
    const auto before = [&](std::size_t stage) {
      if (stream_ && weights) weights = stream_->wait(stage);
      streamed_->before_stage(stage);
    };
    graphs_.run_eagerly(device_, row.query_len, variant(), [&](const StepCapacity& capacity) {
      decoder_.forward(device_.ops(), capacity, variant(), before, &streamed_->kv());
    });
    kv = streamed_->finish();
  }
  step.lost_kv = !kv;
  if (!kv) log_error(fmt::format("a request ends: {}", kv.error().message));
  return weights;
}

}  // namespace sluice
