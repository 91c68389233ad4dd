// The engine's host time per step: plan, submit, collect and commit with an executor that computes
// nothing. Arguments: running sequences, and steps in flight. docs/scheduling.md has the figures.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "kv/kv_manager.h"
#include "scheduler/executor.h"
#include "scheduler/policy.h"
#include "scheduler/scheduler.h"

namespace sluice {
namespace {

constexpr std::int32_t kBlockSize = 16;
constexpr std::int32_t kPromptLen = 64;
constexpr std::int32_t kMaxModelLen = 4096;

// Samples token 1 for every row that wants a token, at once.
class NullExecutor final : public Executor {
 public:
  explicit NullExecutor(int max_in_flight) : max_in_flight_(max_in_flight) {}

  int max_in_flight() const override { return max_in_flight_; }

  Status submit(const BatchPlan& plan) override {
    waiting_[submitted_++ % 2] = &plan;
    return {};
  }

  Status collect(StepResult& out) override {
    out.clear();
    for (const PlanRow& row : waiting_[collected_++ % 2]->rows) {
      const std::int32_t tokens = row.num_logits > 0 ? 1 : 0;
      out.rows.push_back(
          {.first_token = static_cast<std::int32_t>(out.tokens.size()), .num_tokens = tokens});
      if (tokens == 1) {
        out.tokens.push_back(1);
      }
    }
    return {};
  }

 private:
  int max_in_flight_;
  const BatchPlan* waiting_[2] = {};
  unsigned submitted_ = 0;
  unsigned collected_ = 0;
};

std::unique_ptr<Engine> make_engine(std::int32_t seqs, int in_flight, const Clock& clock) {
  const std::int32_t budget = seqs + 512;
  auto kv = std::make_unique<KvManager>(
      KvOptions{.block_size = kBlockSize,
                .group_windows = {0},
                .num_blocks = seqs * (kMaxModelLen / kBlockSize + 1) + 2,
                .max_num_seqs = seqs,
                .max_model_len = kMaxModelLen,
                .max_query_len = budget});
  auto scheduler = std::make_unique<Scheduler>(SchedulerOptions{.token_budget = budget,
                                                                .max_num_seqs = seqs,
                                                                .max_model_len = kMaxModelLen,
                                                                .eos_ids = {0}},
                                               *kv, make_policy("stall-free").value());
  return std::make_unique<Engine>(EngineLimits{.vocab_size = 1000, .max_model_len = kMaxModelLen},
                                  std::make_unique<NullExecutor>(in_flight), std::move(kv),
                                  std::move(scheduler), clock);
}

void fill(Engine& engine, std::int32_t seqs) {
  static RequestId next_id = 1;
  for (std::int32_t i = 0; i < seqs; ++i) {
    Request request;
    request.id = next_id++;
    request.prompt.assign(kPromptLen, 2 + i % 900);
    request.sampling.max_tokens = kMaxModelLen - kPromptLen;
    benchmark::DoNotOptimize(engine.add_request(std::move(request)));
  }
}

// Sequences that decode; each that ends is replaced outside the measured time.
void BM_DecodeStep(benchmark::State& state) {
  const auto seqs = static_cast<std::int32_t>(state.range(0));
  const SystemClock clock;
  const std::unique_ptr<Engine> engine = make_engine(seqs, static_cast<int>(state.range(1)), clock);
  std::int64_t steps = 0;
  for (auto _ : state) {
    if (engine->num_requests() == 0) {
      state.PauseTiming();
      fill(*engine, seqs);
      for (std::int32_t i = 0; i < 40; ++i) {
        benchmark::DoNotOptimize(engine->step());
      }
      state.ResumeTiming();
    }
    auto outputs = engine->step();
    benchmark::DoNotOptimize(outputs);
    ++steps;
  }
  state.SetItemsProcessed(steps * seqs);
}
BENCHMARK(BM_DecodeStep)->ArgsProduct({{1, 16, 64, 256}, {1, 2}});

}  // namespace
}  // namespace sluice
