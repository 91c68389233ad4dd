// An engine that runs a FakeModel, for tests of the engine and of its callers.
// Threads: the engine's; any thread may open the gate.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "engine/engine.h"
#include "scheduler/policy.h"
#include "tests/support/executor_wrappers.h"
#include "tests/support/fake_executor.h"
#include "tests/support/fake_model.h"

namespace sluice {

struct FakeEngineOptions {
  std::int32_t block_size = 4;
  std::int32_t num_blocks = 64;
  std::int32_t max_num_seqs = 8;
  std::int32_t max_model_len = 100;
  std::int32_t token_budget = 16;
  int steps_in_flight = 1;
  int good_steps = 1 << 30;                     // the step after them fails
  Gate* gate = nullptr;                         // that steps stop at; null: none
  std::function<void()> while_committing = {};  // see CommitHookExecutor
  std::int32_t max_blocks = 0;                  // as in KvOptions
  std::int32_t chunk_blocks = 0;                // as in KvOptions
  std::int32_t tier_pages = 0;                  // as in KvOptions
  Duration kv_idle_release{0};
  AdapterOptions adapters = {};
  std::function<void(FakeExecutor&)> on_executor = {};  // lends the executor, which the engine owns
};

// REQUIRES: model, clock and gate outlive the engine.
inline std::unique_ptr<Engine> make_fake_engine(const FakeModel& model, const Clock& clock,
                                                const FakeEngineOptions& options) {
  KvOptions kv_options;
  kv_options.block_size = options.block_size;
  kv_options.group_windows = {0};
  kv_options.num_blocks = options.num_blocks;
  kv_options.max_blocks = options.max_blocks;
  kv_options.chunk_blocks = options.chunk_blocks;
  kv_options.tier_pages = options.tier_pages;
  kv_options.max_num_seqs = options.max_num_seqs;
  kv_options.max_model_len = options.max_model_len;
  kv_options.max_query_len = options.token_budget;
  SchedulerOptions scheduler_options;
  scheduler_options.token_budget = options.token_budget;
  scheduler_options.max_num_seqs = options.max_num_seqs;
  scheduler_options.max_model_len = options.max_model_len;
  scheduler_options.eos_ids = model.eos_ids;
  scheduler_options.adapters = options.adapters;
  scheduler_options.kv_idle_release = options.kv_idle_release;
  auto kv = std::make_unique<KvManager>(kv_options);
  auto scheduler =
      std::make_unique<Scheduler>(scheduler_options, *kv, make_policy("stall-free").value());
  auto fake = std::make_unique<FakeExecutor>(model, kv_options, options.steps_in_flight);
  const DeviceMeter* meter = fake.get();
  if (options.on_executor) options.on_executor(*fake);
  std::unique_ptr<Executor> executor = std::move(fake);
  executor = std::make_unique<FailingExecutor>(std::move(executor), options.good_steps);
  if (options.while_committing) {
    auto hooked =
        std::make_unique<CommitHookExecutor>(std::move(executor), *meter, options.while_committing);
    meter = hooked.get();
    executor = std::move(hooked);
  }
  if (options.gate != nullptr) {
    executor = std::make_unique<GatedExecutor>(std::move(executor), *options.gate);
  }
  const EngineLimits limits{model.vocab_size, options.max_model_len, options.adapters.num_adapters};
  return std::make_unique<Engine>(limits, std::move(executor), std::move(kv), std::move(scheduler),
                                  clock, meter);
}

}  // namespace sluice
