// The engine's host time per step. BM_DecodeStep: plan, submit, collect and commit with an executor
// that computes nothing; arguments: running sequences, and steps in flight (docs/scheduling.md).
// BM_OutsideOps: a real step less its ops, so with the executor's inputs and sampling of a small
// vocabulary; argument: running sequences (docs/performance.md).
#include <benchmark/benchmark.h>
#include <stdlib.h>
#include <time.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "apps/make_device.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "engine/engine.h"
#include "engine/engine_loader.h"
#include "kv/kv_manager.h"
#include "offload/kv_tier.h"
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

// A model whose ops are short. Its vocabulary is, too: sampling is not what is measured.
constexpr const char* kTinyConfig = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
  "vocab_size": 64, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
  "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "hidden_act": "silu",
  "max_position_embeddings": 4096, "rope_theta": 10000.0, "rms_norm_eps": 1e-5,
  "tie_word_embeddings": true, "bos_token_id": 0, "eos_token_id": 0})";

// CPU time of the calling thread: other work on the machine does not count.
class ThreadCpuClock final : public Clock {
 public:
  TimePoint now() const override {
    timespec time{};
    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0);
    return {std::chrono::seconds(time.tv_sec) + Duration(time.tv_nsec)};
  }
};

// A tier that holds blocks of no request.
class IdleTier final : public KvTier {
 public:
  explicit IdleTier(std::int32_t pages) : pages_(pages) {}
  std::int32_t num_pages() const override { return pages_; }
  std::vector<TierPage> take_stored() override {
    std::vector<TierPage> stored;
    for (std::int32_t page = 0; page < pages_; ++page) {
      const auto number = static_cast<std::uint64_t>(page) + 1;
      stored.push_back({page, 0, {number, number * 0x9E3779B97F4A7C15ULL}, {}});
    }
    return stored;
  }
  bool accepts_saves() const override { return true; }
  void save(std::uint64_t, const TierPage&, std::span<const std::byte>) override { CHECK(false); }
  void load(std::uint64_t, const TierPage&, std::span<std::byte>) override { CHECK(false); }
  void touch(std::int32_t) override {}
  void erase(std::int32_t) override {}
  void poll(std::vector<TierMove>&) override {}
  void wait(Duration) override {}
  Status flush(Duration) override { return {}; }

 private:
  std::int32_t pages_;
};

// An engine with random weights, one thread and traced steps. `pages`: of an idle tier, full; 0:
// there is none; absent: there is no prefix cache either.
struct TracedEngine {
  explicit TracedEngine(std::int32_t seqs, std::optional<std::int32_t> pages = std::nullopt)
      : trace(cpu_clock), timeline(clock) {
    std::string folder = std::filesystem::temp_directory_path() / "engine_bench_XXXXXX";
    CHECK(mkdtemp(folder.data()) != nullptr);
    CHECK(write_file(folder + "/config.json", kTinyConfig));
    EngineOptions options;
    options.load_format = LoadFormat::kDummy;
    options.max_num_seqs = seqs;
    options.threads = 1;
    if (!pages) options.prefix_caching = PrefixCaching::kOff;
    pool = make_pool(options);
    device = make_device(options, *pool).value();
    LoadedExecutor parts = load_executor(folder, options, *device, *pool, timeline).value();
    if (pages.value_or(0) > 0) {
      CHECK(add_tier(std::make_unique<IdleTier>(*pages), TierEviction::kSeconds, parts));
    }
    loaded = make_engine(std::move(parts), clock, timeline);
    std::filesystem::remove_all(folder);
    CHECK(loaded.trace->trace_steps(&trace));
  }

  SystemClock clock;
  ThreadCpuClock cpu_clock;
  StepTrace trace;
  StartupTimeline timeline;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Device> device;
  LoadedEngine loaded;
};

void add_decodes(Engine& engine, std::int32_t seqs) {
  static RequestId next_id = 1;
  for (std::int32_t i = 0; i < seqs; ++i) {
    Request request;
    request.id = next_id++;
    request.prompt.assign(4, i % 60);
    request.sampling.max_tokens = 2000;
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    CHECK(engine.add_request(std::move(request)));
  }
}

// CPU time of a step in which `seqs` sequences decode.
Duration time_of_step(TracedEngine& traced, std::int32_t seqs) {
  Engine& engine = *traced.loaded.engine;
  if (!engine.has_work()) {
    add_decodes(engine, seqs);
    for (int i = 0; i < 4; ++i) CHECK(engine.step());  // the prompts
  }
  const TimePoint begin = traced.cpu_clock.now();
  CHECK(engine.step());
  return traced.cpu_clock.now() - begin;
}

void BM_OutsideOps(benchmark::State& state) {
  const auto seqs = static_cast<std::int32_t>(state.range(0));
  TracedEngine traced(seqs);
  for (auto _ : state) {
    const Duration whole = time_of_step(traced, seqs);
    // The trace keeps the latest of steps with as many tokens.
    const Duration ops = traced.trace.decode_step()->length;
    state.SetIterationTime(std::chrono::duration<double>(whole - ops).count());
  }
}

// A whole decode step, CPU time of its one thread: with an idle tier that holds `pages` blocks, and
// without (docs/kv-tiers.md).
void BM_StepWithIdleTier(benchmark::State& state) {
  const auto seqs = static_cast<std::int32_t>(state.range(1));
  TracedEngine traced(seqs, static_cast<std::int32_t>(state.range(0)));
  for (auto _ : state) {
    state.SetIterationTime(std::chrono::duration<double>(time_of_step(traced, seqs)).count());
  }
}
BENCHMARK(BM_StepWithIdleTier)
    ->ArgsProduct({{0, 100'000}, {16, 64}})
    ->ArgNames({"pages", "running"})
    ->UseManualTime()
    ->Iterations(1500);

BENCHMARK(BM_OutsideOps)->Arg(1)->Arg(16)->Arg(64)->UseManualTime()->Iterations(1500);

}  // namespace
}  // namespace sluice
