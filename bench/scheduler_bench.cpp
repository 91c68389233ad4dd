// The scheduler's cost per step under each policy: steady decode and admission, and beside a
// queue of 100,000. Reported per running sequence, per admission or per plan; the targets stand in
// docs/scheduling.md.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kv/block_hash.h"
#include "kv/kv_manager.h"
#include "scheduler/policy.h"
#include "scheduler/scheduler.h"

namespace sluice {
namespace {

constexpr std::int32_t kBlockSize = 16;

// The policies by number, since a benchmark's arguments are numbers.
std::string_view policy_name(std::int64_t number) {
  return policy_names()[static_cast<std::size_t>(number)];
}

std::vector<std::int64_t> policy_numbers() {
  return benchmark::CreateDenseRange(0, static_cast<std::int64_t>(policy_names().size()) - 1, 1);
}

struct Bench {
  Bench(std::string_view policy, std::int32_t seqs, std::int32_t prompt_len,
        std::int32_t max_model_len, std::int32_t token_budget,
        const std::optional<TimeBudget>& time_budget = std::nullopt, std::int32_t num_blocks = 0,
        std::int32_t tier_pages = 0)
      : kv({.block_size = kBlockSize,
            .group_windows = {0},
            .num_blocks = num_blocks > 0 ? num_blocks : seqs * (max_model_len / kBlockSize + 1) + 2,
            .max_blocks = 0,
            .max_num_seqs = seqs,
            .max_model_len = max_model_len,
            .max_query_len = max_model_len,
            .tier_pages = tier_pages}),
        scheduler({.token_budget = token_budget,
                   .max_num_seqs = seqs,
                   .max_model_len = max_model_len,
                   .eos_ids = {0},
                   .micro_batches = 1,
                   .time_budget = time_budget},
                  kv, make_policy(policy).value()) {
    for (std::int32_t page = 0; page < tier_pages; ++page) {
      kv.restore_page(page, {1, static_cast<std::uint64_t>(page)}, 0);
    }
    view.tier_accepts_saves = tier_pages > 0;
    for (std::int32_t i = 0; i < seqs; ++i) {
      requests.push_back(std::make_unique<Request>());
      requests.back()->prompt.assign(static_cast<std::size_t>(prompt_len), i + 1);
      requests.back()->sampling.max_tokens = max_model_len;
      add(*requests.back());
    }
  }

  Sequence& add(const Request& request) {
    sequences.push_back(std::make_unique<Sequence>());
    Sequence& s = *sequences.back();
    s.id = ++next_id;
    s.request = &request;
    s.tokens = request.prompt;
    s.prompt_len = static_cast<std::int32_t>(request.prompt.size());
    if (!scheduler.add(s)) std::abort();
    return s;
  }

  void plan(BatchPlan& p) { scheduler.plan(TimePoint{}, view, p); }

  void answer(const BatchPlan& p) {
    result.clear();
    for (const PlanRow& row : p.rows) {
      result.rows.push_back({.first_token = static_cast<std::int32_t>(result.tokens.size()),
                             .num_tokens = row.num_logits});
      for (std::int32_t i = 0; i < row.num_logits; ++i) result.tokens.push_back(7);
    }
  }

  void commit(const BatchPlan& p) { scheduler.commit(p, result, TimePoint{}, commits); }

  KvManager kv;
  Scheduler scheduler;
  ResourceView view;
  std::vector<std::unique_ptr<Request>> requests;
  std::vector<std::unique_ptr<Sequence>> sequences;
  SequenceId next_id = 0;
  StepResult result;
  std::vector<RowCommit> commits;
};

using Clock = std::chrono::steady_clock;

// Times of single calls; the median, so that a machine that is busy otherwise does not count.
class CallTimes {
 public:
  template <class F>
  void measure(F&& call) {
    const auto start = Clock::now();
    call();
    times_.push_back(std::chrono::duration<double, std::nano>(Clock::now() - start).count());
  }
  double median() { return quantile(0.5); }
  double quantile(double share) {
    const auto place =
        times_.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(times_.size()));
    std::nth_element(times_.begin(), place, times_.end());
    return *place;
  }

 private:
  std::vector<double> times_;
};

TimeBudget time_budget() {
  TimeBudget time;
  for (std::int32_t i = 0; i < 10; ++i) {
    time.predictor.knots[static_cast<std::size_t>(i)] = {i == 0 ? 0 : 4 << i, 1e6 + 1e6 * i};
  }
  time.predictor.num_knots = 10;
  time.predictor.chunk_work_ns = 1;
  time.tbt = std::chrono::milliseconds(50);
  time.longest_step = time.tbt;
  return time;
}

// Both halves of a decode step; `plan_ns` and `commit_ns` are per running sequence.
void decode_steps(benchmark::State& state, std::string_view policy,
                  const std::optional<TimeBudget>& time, std::int32_t tier_pages = 0) {
  const auto seqs = static_cast<std::int32_t>(state.range(1));
  const auto depth = static_cast<std::size_t>(state.range(2));
  const auto make = [&] {
    return std::make_unique<Bench>(policy, seqs, 32, 4096, seqs * 32, time, 0, tier_pages);
  };
  auto bench = make();
  std::vector<BatchPlan> plans(depth);
  std::size_t planned = 0;
  std::size_t committed = 0;
  CallTimes planning;
  CallTimes committing;
  for (auto _ : state) {
    if (bench->sequences[0]->tokens.size() > 3900) {
      state.PauseTiming();
      bench = make();
      planned = committed = 0;
      state.ResumeTiming();
    }
    while (planned - committed < depth) {
      planning.measure([&] { bench->plan(plans[planned % depth]); });
      ++planned;
    }
    const BatchPlan& oldest = plans[committed++ % depth];
    bench->answer(oldest);
    committing.measure([&] { bench->commit(oldest); });
  }
  state.SetLabel(std::string(policy));
  state.counters["plan_ns"] = planning.median() / seqs;
  state.counters["commit_ns"] = committing.median() / seqs;
}

void steady_decode(benchmark::State& state) {
  decode_steps(state, policy_name(state.range(0)), std::nullopt);
}
BENCHMARK(steady_decode)
    ->ArgsProduct({policy_numbers(), {16, 64, 256, 1024}, {1, 2}})
    ->ArgNames({"policy", "running", "in_flight"});

// `stall-free` with a tier that holds 100,000 blocks and has nothing to do, beside the same
// without.
void steady_decode_idle_tier(benchmark::State& state) {
  decode_steps(state, "stall-free", std::nullopt, static_cast<std::int32_t>(state.range(0)));
}
BENCHMARK(steady_decode_idle_tier)
    ->ArgsProduct({{0, 100'000}, {16, 256}, {1, 2}})
    ->ArgNames({"pages", "running", "in_flight"});

// `stall-free` with a time budget.
void steady_decode_by_time(benchmark::State& state) {
  decode_steps(state, "stall-free", time_budget());
}
BENCHMARK(steady_decode_by_time)
    ->ArgsProduct({{0}, {16, 64, 256, 1024}, {1, 2}})
    ->ArgNames({"policy", "running", "in_flight"});

// One request of 4,000 tokens comes, with all or none of its prompt cached, gets its first token
// and ends. `admit_ns` is the plan that admits it.
void admission(benchmark::State& state) {
  const std::string_view policy = policy_name(state.range(0));
  const bool cached = state.range(1) != 0;
  Bench bench(policy, 2, 16, 8192, 4096);
  Request request;
  request.prompt.assign(4000, 5);
  request.sampling.max_tokens = 1;
  BatchPlan plan;
  while (bench.sequences.size() > 0) {
    bench.plan(plan);
    bench.answer(plan);
    bench.commit(plan);
    for (auto& s : bench.sequences) bench.scheduler.cancel(*s);
    bench.sequences.clear();
  }
  BlockHasher hasher(Hash128{1, 2}, kBlockSize);
  CallTimes admitting;
  std::int64_t admissions = 0;
  for (auto _ : state) {
    if (!cached || admissions == 0) {
      state.PauseTiming();
      request.prompt[0] = static_cast<TokenId>(admissions % 30000);
      request.block_hashes = hasher.hash_prompt(request.prompt);
      state.ResumeTiming();
    }
    bench.add(request);
    admitting.measure([&] { bench.plan(plan); });
    bench.answer(plan);
    bench.commit(plan);
    bench.sequences.clear();
    ++admissions;
  }
  state.SetLabel(std::string(policy));
  state.counters["admit_ns"] = admitting.median();
}
BENCHMARK(admission)->ArgsProduct({policy_numbers(), {0, 1}})->ArgNames({"policy", "cached"});

// 100,000 sequences wait, one choice a request or 100, of one client. `p99_ns` is of plans, most of
// which admit no sequence; `cancel_ns` of sequences in the middle of the queue.
void long_queue(benchmark::State& state) {
  constexpr int kWaiting = 100'000;
  constexpr int kPlans = 400;
  const std::string_view policy = policy_name(state.range(0));
  const auto choices = static_cast<std::int32_t>(state.range(1));
  for (auto _ : state) {
    Bench bench(policy, 64, 32, 4096, 512);
    for (auto& s : bench.sequences) bench.scheduler.cancel(*s);
    for (int i = 0; i < kWaiting; ++i) {
      if (i % choices == 0) {
        bench.requests.push_back(std::make_unique<Request>());
        bench.requests.back()->prompt.assign(32, 5);
        bench.requests.back()->sampling.max_tokens = 20;
        bench.requests.back()->sampling.n = choices;
      }
      bench.add(*bench.requests.back());
    }
    CallTimes planning;
    CallTimes cancelling;
    BatchPlan plan;
    for (int i = 0; i < kPlans; ++i) {
      planning.measure([&] { bench.plan(plan); });
      bench.answer(plan);
      bench.commit(plan);
      Sequence& middle = *bench.sequences[static_cast<std::size_t>(kWaiting / 2 + i)];
      cancelling.measure([&] { bench.scheduler.cancel(middle); });
    }
    state.counters["p99_ns"] = planning.quantile(0.99);
    state.counters["cancel_ns"] = cancelling.median();
  }
  state.SetLabel(std::string(policy));
}
BENCHMARK(long_queue)
    ->ArgsProduct({policy_numbers(), {1, 100}})
    ->ArgNames({"policy", "choices"})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

// Prompts of 64 tokens with answers of 256 take turns in memory for a few of them. `turn_ns` is the
// 99th percentile of plans, among which are those that end turns and choose among all that wait;
// `median_ns` that of all.
void fair_turns(benchmark::State& state) {
  const auto prompts = static_cast<std::int32_t>(state.range(0));
  const auto running = static_cast<std::int32_t>(state.range(1));
  constexpr std::int32_t kContext = 512;
  const std::int32_t blocks = running * (320 / kBlockSize) + 1;
  for (auto _ : state) {
    Bench bench("fair", running, 64, kContext, 512, std::nullopt, blocks);
    BlockHasher hasher(Hash128{1, 2}, kBlockSize);
    for (auto& s : bench.sequences) bench.scheduler.cancel(*s);
    for (std::int32_t i = 0; i < prompts; ++i) {
      bench.requests.push_back(std::make_unique<Request>());
      Request& request = *bench.requests.back();
      request.prompt.assign(64, i + 5);
      request.sampling.max_tokens = 256;
      request.block_hash_root = Hash128{1, 2};
      request.block_hashes = hasher.hash_prompt(request.prompt);
      bench.add(request);
    }
    CallTimes planning;
    BatchPlan plan;
    std::int64_t preempted = 0;
    for (int i = 0; i < 4000 && bench.scheduler.has_work(); ++i) {
      planning.measure([&] { bench.plan(plan); });
      preempted += static_cast<std::int64_t>(plan.preempted.size());
      if (!plan.has_rows()) continue;
      bench.answer(plan);
      bench.commit(plan);
    }
    state.counters["median_ns"] = planning.median();
    state.counters["turn_ns"] = planning.quantile(0.99);
    state.counters["displaced"] = static_cast<double>(preempted);
  }
}
BENCHMARK(fair_turns)
    ->Args({1024, 16})
    ->Args({1024, 64})
    ->Args({4096, 64})
    ->ArgNames({"prompts", "memory_for"})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

void hash_prompt(benchmark::State& state) {
  const std::vector<TokenId> prompt(4000, 5);
  BlockHasher hasher(Hash128{1, 2}, kBlockSize);
  for (auto _ : state) benchmark::DoNotOptimize(hasher.hash_prompt(prompt));
  state.counters["ns_per_block"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * 250,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(hash_prompt);

}  // namespace
}  // namespace sluice
