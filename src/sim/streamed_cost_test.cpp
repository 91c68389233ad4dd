#include "sim/streamed_cost.h"

#include <gtest/gtest.h>

#include "sim/simulated_machine.h"
#include "sim/simulation.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;

class FixedCost final : public StepCost {
 public:
  std::int32_t num_stages() const override { return 1; }
  void stage_times(const BatchPlan&, std::span<Duration> stages) override {
    stages[0] = milliseconds(20);
  }
  Duration send_time(const BatchPlan&) const override { return Duration(0); }
};

double step_ms(StepCost& cost, const BatchPlan& plan) {
  return to_milliseconds(step_latency(cost, plan));
}

TEST(StreamedCost, AStepTakesTheSlowerOfComputeAndCopies) {
  // 1 MB for a token at 10 GB/s is 0.1 ms; 10 layers start copies of 0.1 ms each.
  const TierCost link{.latency = 1e-4, .bytes_per_second = 1e10};
  StreamedCost cost(std::make_unique<FixedCost>(), link, 1e6, 10);
  EXPECT_NEAR(step_ms(cost, sample_step(1, 50, 0, 0)), 20, 1e-6);
  EXPECT_NEAR(step_ms(cost, sample_step(1, 1000, 0, 0)), 101, 1e-3);
  EXPECT_NEAR(step_ms(cost, sample_step(2, 1000, 0, 0)), 201, 1e-3);
  // A first chunk only writes.
  EXPECT_NEAR(step_ms(cost, sample_step(0, 0, 500, 0)), 51, 1e-3);
}

TEST(StreamedCost, AMachineThatStreamsHasRoomForMoreThanItsMemory) {
  Deployment d;
  d.gpu = find_gpu("h100").value();
  d.model = find_model_shape("opt-30b").value();
  d.host = find_host_stack("native").value();
  SimulatedMachineOptions options;
  options.simulation.replica.max_model_len = 8512;
  const SimulatedMachine own = make_machine(d, options).value();
  options.stream_link = "nvlink";
  const SimulatedMachine streamed = make_machine(d, options).value();
  EXPECT_EQ(streamed.options.replica.num_blocks, 16 * own.options.replica.num_blocks + 1);
  EXPECT_EQ(streamed.options.replica.tier_pages, 0);
  const BatchPlan step = sample_step(8, 8192, 0, 0);
  EXPECT_GT(step_latency(*streamed.cost, step), step_latency(*own.cost, step));
  options.stream_link = "pcie";
  EXPECT_GT(step_latency(*make_machine(d, options).value().cost, step),
            4 * step_latency(*streamed.cost, step));
  options.tier_link = "pcie";
  EXPECT_FALSE(make_machine(d, options));
  options.tier_link = "";
  d.pp = 2;
  EXPECT_FALSE(make_machine(d, options));
}

}  // namespace
}  // namespace sluice
