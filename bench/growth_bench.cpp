// Measures how growing KV memory changes the gaps between tokens, on the real engine:
//   growth_bench MODEL [--streams 8] [--output 240] [--rounds 3] [--threads N]
// In turns, an engine that backs KV memory by need and one that backs it all at start decode the
// same streams. The first is fresh in each round, so that its memory grows while it is measured.
// The second has run the streams before, so that all of its pages are there. Prints the median, the
// P99 and the longest gap of each, and the ratio of the P99s.
#include <fmt/format.h>

#include <CLI/CLI.hpp>  // tidy: allow(heavy-header) a program of its own
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "apps/make_device.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "engine/engine_loader.h"

namespace sluice::bench {
namespace {

constexpr int kPromptTokens = 32;

struct Options {
  std::string model;
  int streams = 8;
  int output = 240;
  int rounds = 3;
  int threads = available_cpus();
};

struct LoadedBench {
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Device> device;
  LoadedEngine loaded;
};

Result<LoadedBench> load(const Options& options, KvBacking backing, const Clock& clock) {
  EngineOptions engine;
  engine.max_num_seqs = options.streams;
  engine.max_model_len = kPromptTokens + options.output;
  engine.threads = options.threads;
  engine.prefix_caching = PrefixCaching::kOff;
  engine.kv_backing = backing;
  LoadedBench bench;
  bench.pool = make_pool(engine);
  ASSIGN_OR_RETURN(bench.device, make_device(engine, *bench.pool));
  StartupTimeline timeline(clock);
  ASSIGN_OR_RETURN(bench.loaded,
                   load_engine(options.model, engine, *bench.device, *bench.pool, clock, timeline));
  return bench;
}

// Runs `streams` requests to their end and appends the time of each step after the prefills.
Status decode(Engine& engine, int streams, int output, const Clock& clock,
              std::vector<double>& gaps) {
  static RequestId next_id = 1;
  SplitMix64 rng(7);
  for (int i = 0; i < streams; ++i) {
    Request request;
    request.id = next_id++;
    for (int t = 0; t < kPromptTokens; ++t) {
      request.prompt.push_back(
          static_cast<TokenId>(rng.below(static_cast<std::uint64_t>(engine.limits().vocab_size))));
    }
    request.sampling.max_tokens = output;
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    RETURN_IF_ERROR(engine.add_request(std::move(request)));
  }
  TimePoint last = clock.now();
  bool decoding = false;
  while (engine.has_work()) {
    ASSIGN_OR_RETURN(const auto outputs, engine.step());
    const TimePoint now = clock.now();
    const bool all = outputs.size() == static_cast<std::size_t>(streams);
    if (decoding && all) gaps.push_back(to_milliseconds(now - last));
    decoding = all;
    last = now;
  }
  return {};
}

double quantile(std::vector<double>& sorted, double q) {
  return sorted[std::min(sorted.size() - 1,
                         static_cast<std::size_t>(q * static_cast<double>(sorted.size())))];
}

double show(const char* name, std::vector<double>& gaps, std::int32_t blocks) {
  std::sort(gaps.begin(), gaps.end());
  fmt::print("| {} | {} | {} | {:.2f} ms | {:.2f} ms | {:.2f} ms |\n", name, gaps.size(), blocks,
             quantile(gaps, 0.5), quantile(gaps, 0.99), gaps.back());
  return quantile(gaps, 0.99);
}

Status run(const Options& options) {
  const SystemClock clock;
  std::vector<double> growing;
  std::vector<double> backed;
  std::vector<double> ignored;
  ASSIGN_OR_RETURN(const LoadedBench full, load(options, KvBacking::kAtStart, clock));
  RETURN_IF_ERROR(decode(*full.loaded.engine, options.streams, options.output, clock, ignored));
  std::int32_t first_blocks = 0;
  for (int round = 0; round < options.rounds; ++round) {
    ASSIGN_OR_RETURN(const LoadedBench fresh, load(options, KvBacking::kByNeed, clock));
    first_blocks = fresh.loaded.first_kv_blocks;
    RETURN_IF_ERROR(decode(*fresh.loaded.engine, 1, 2, clock, ignored));
    RETURN_IF_ERROR(decode(*fresh.loaded.engine, options.streams, options.output, clock, growing));
    RETURN_IF_ERROR(decode(*full.loaded.engine, options.streams, options.output, clock, backed));
  }
  fmt::print(
      "| KV memory | gaps | blocks at start | median | P99 | longest |\n"
      "|---|---|---|---|---|---|\n");
  const double by_need = show("by need", growing, first_blocks);
  const double at_start = show("at start", backed, full.loaded.kv_blocks);
  fmt::print("P99 by need / at start: {:.3f}\n", by_need / at_start);
  return {};
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  sluice::bench::Options options;
  CLI::App app("Measures how growing KV memory changes the gaps between tokens");
  app.add_option("model", options.model, "checkpoint directory")->required();
  app.add_option("--streams", options.streams)->capture_default_str();
  app.add_option("--output", options.output, "tokens of every stream")->capture_default_str();
  app.add_option("--rounds", options.rounds)->capture_default_str();
  app.add_option("--threads", options.threads)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (const auto status = sluice::bench::run(options); !status) {
    fmt::print(stderr, "growth_bench: {}\n", status.error().message);
    return 1;
  }
  return 0;
}
