// The simulator and the engine decide alike: with the same step times and arrivals both make the
// same plans at the same moments, and every token comes at the same time.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "kv/kv_manager.h"
#include "scheduler/policy.h"
#include "scheduler/scheduler.h"
#include "sim/cost_model.h"
#include "sim/replica.h"
#include "tests/support/scheduler_harness.h"

namespace sluice {
namespace {

ReplicaOptions replica_options(std::string_view policy) {
  ReplicaOptions options;
  options.scheduler = policy;
  options.token_budget = 128;
  options.max_num_seqs = 12;
  options.max_model_len = 600;
  options.num_blocks = 90;  // short, so that some are preempted
  return options;
}

Workload bursts(std::uint64_t seed) {
  SplitMix64 random(seed);
  Workload workload;
  Duration at{0};
  for (int i = 0; i < 60; ++i) {
    if (random.below(3) > 0) at += std::chrono::microseconds(random.below(120'000));
    workload.requests.push_back({at,
                                 1 + static_cast<std::int32_t>(random.below(400)),
                                 1 + static_cast<std::int32_t>(random.below(160)),
                                 {}});
  }
  return workload;
}

// Step times of the hardware model, replayed to both.
class RecordedCost final : public StepCost {
 public:
  RecordedCost() : model_(deployment()) {}
  std::int32_t num_stages() const override { return 1; }
  void stage_times(const BatchPlan& plan, std::span<Duration> stages) override {
    plans.push_back(SchedulerHarness::describe(plan));
    model_.stage_times(plan, stages);
  }
  Duration send_time(const BatchPlan&) const override { return Duration(0); }

  std::vector<std::string> plans;

 private:
  static Deployment deployment() {
    Deployment d;
    d.gpu = find_gpu("a40").value();
    d.model = find_model_shape("llama-3-8b").value();
    d.host = find_host_stack("native").value();
    return d;
  }
  CostModel model_;
};

// Runs a step by moving the clock.
class ReplayingExecutor final : public Executor {
 public:
  ReplayingExecutor(RecordedCost& cost, ManualClock& clock) : cost_(cost), clock_(clock) {}
  int max_in_flight() const override { return 1; }
  Status submit(const BatchPlan& plan) override {
    plan_ = &plan;
    cost_.stage_times(plan, std::span(&time_, 1));
    return {};
  }
  Status collect(StepResult& out) override {
    clock_.advance(time_);
    out.clear();
    for (const PlanRow& row : plan_->rows) {
      RowResult& result = out.rows.emplace_back();
      result.first_token = static_cast<std::int32_t>(out.tokens.size());
      result.num_tokens = row.num_logits;
      out.tokens.insert(out.tokens.end(), static_cast<std::size_t>(row.num_logits), 1);
    }
    return {};
  }

 private:
  RecordedCost& cost_;
  ManualClock& clock_;
  const BatchPlan* plan_ = nullptr;
  Duration time_{0};
};

struct Outcome {
  std::vector<std::string> plans;
  Duration end{0};
  std::int64_t tokens = 0;
  std::int64_t preemptions = 0;
};

Outcome simulated(const Workload& workload, const ReplicaOptions& options) {
  RecordedCost cost;
  ServingRecorder recorder;
  Replica replica(options, cost, recorder);
  for (const WorkloadRequest& request : workload.requests) replica.add(request);
  replica.finish();
  Outcome run;
  run.end = replica.last_end();
  run.tokens = recorder.finish(run.end).total_output_tokens;
  run.preemptions = replica.stats().preemptions;
  run.plans = std::move(cost.plans);
  return run;
}

Request request_of(const WorkloadRequest& asked, RequestId id) {
  Request request;
  request.id = id;
  request.prompt.assign(static_cast<std::size_t>(asked.prompt_tokens), 1);
  request.sampling.max_tokens = asked.output_tokens;
  request.sampling.ignore_eos = true;
  request.arrival = TimePoint{asked.arrival};
  return request;
}

Outcome served(const Workload& workload, const ReplicaOptions& options) {
  RecordedCost cost;
  ManualClock clock;
  auto kv = std::make_unique<KvManager>(replica_kv_options(options));
  auto scheduler =
      std::make_unique<Scheduler>(SchedulerOptions{.token_budget = options.token_budget,
                                                   .max_num_seqs = options.max_num_seqs,
                                                   .max_model_len = options.max_model_len,
                                                   .eos_ids = {}},
                                  *kv, make_policy(options.scheduler).value());
  Engine engine({.vocab_size = 1000, .max_model_len = options.max_model_len, .num_adapters = 0},
                std::make_unique<ReplayingExecutor>(cost, clock), std::move(kv),
                std::move(scheduler), clock);
  Outcome run;
  std::size_t next = 0;
  const std::size_t count = workload.requests.size();
  while (next < count || engine.has_work()) {
    if (!engine.has_work()) {
      clock.advance(workload.requests[next].arrival - clock.now().since_start);
    }
    while (next < count && workload.requests[next].arrival <= clock.now().since_start) {
      EXPECT_TRUE(engine.add_request(request_of(workload.requests[next], next + 1)).has_value());
      ++next;
    }
    const auto outputs = engine.step();
    EXPECT_TRUE(outputs.has_value());
    for (const ChoiceOutput& output : *outputs) {
      run.tokens += static_cast<std::int64_t>(output.tokens.size());
    }
  }
  run.end = clock.now().since_start;
  run.preemptions = engine.stats().preemptions;
  run.plans = std::move(cost.plans);
  return run;
}

TEST(SimulatorPlans, AreTheEnginesUnderEveryPolicy) {
  std::int64_t preemptions = 0;
  for (const std::string_view policy : policy_names()) {
    for (const std::uint64_t seed : {1, 2, 3}) {
      const Workload workload = bursts(seed);
      const Outcome simulation = simulated(workload, replica_options(policy));
      const Outcome service = served(workload, replica_options(policy));
      EXPECT_EQ(simulation.plans, service.plans) << policy << " seed " << seed;
      EXPECT_EQ(simulation.end, service.end) << policy << " seed " << seed;
      EXPECT_EQ(simulation.tokens, service.tokens) << policy << " seed " << seed;
      EXPECT_EQ(simulation.preemptions, service.preemptions) << policy << " seed " << seed;
      preemptions += service.preemptions;
    }
  }
  EXPECT_GT(preemptions, 20);
}

}  // namespace
}  // namespace sluice
