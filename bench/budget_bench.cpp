// Token budgets against time budgets, on the real engine:
//   budget_bench MODEL [--streams 8] [--prompts 4] [--shortest 1000] [--longest 6000]
//                [--profile FILE] [--rounds 1] [BUDGET | time:GOAL_MS]...
// While the streams decode, long prompts arrive one after another, so that there is always one to
// run. Shown are the gaps between tokens of the streams and how fast prompts and streams went.
// Configurations take turns, `rounds` times, and their gaps are pooled.
//
// One thread, and time is that thread's CPU time: on a machine with other work the gaps are then
// those of the engine, not of its neighbours. docs/token-budget.md has results.
#include <fmt/format.h>

#include <CLI/CLI.hpp>  // tidy: allow(heavy-header) a program of its own
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "apps/make_device.h"
#include "apps/measure_machine.h"
#include "apps/option_values.h"
#include "base/clock.h"
#include "base/rng.h"
#include "engine/engine_loader.h"
#include "profile/token_budget.h"

namespace sluice::bench {
namespace {

constexpr int kStreamPrompt = 32;
constexpr int kLongOutput = 4;
constexpr std::int32_t kMostTokens = 512;  // of a step planned by time

class CpuClock final : public Clock {
 public:
  TimePoint now() const override {
    timespec t{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return {std::chrono::seconds(t.tv_sec) + Duration(t.tv_nsec)};
  }
};

struct Options {
  std::string model;
  std::string profile;
  std::vector<std::string> budgets = {"64", "128", "256", "time:200"};
  int streams = 8;
  int prompts = 4;
  int shortest = 1000;
  int longest = 6000;
  int rounds = 1;
  int profile_seconds = 120;

  EngineOptions engine() const {
    EngineOptions engine;
    engine.max_num_seqs = streams + 2;
    engine.max_model_len = longest + 2000;
    engine.threads = 1;
    engine.prefix_caching = PrefixCaching::kOff;
    return engine;
  }
};

struct Tally {
  std::vector<double> gaps;  // ms, of the streams, while prompts ran
  double seconds = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t stream_tokens = 0;
};

class Run {
 public:
  Run(const Options& options, Engine& engine, const Clock& clock, Tally& tally)
      : options_(options), engine_(engine), clock_(clock), tally_(tally) {}

  Status run() {
    for (int i = 0; i < options_.streams; ++i) {
      RETURN_IF_ERROR(add(kStreamPrompt, options_.longest));
    }
    while (last_token_.size() < static_cast<std::size_t>(options_.streams)) RETURN_IF_ERROR(step());
    counting_ = true;
    const TimePoint start = clock_.now();
    while (done_ < options_.prompts) {
      while (sent_ < options_.prompts && sent_ - done_ < 2) {
        const int spread = options_.longest - options_.shortest;
        const int length = options_.shortest + spread * sent_ / std::max(1, options_.prompts - 1);
        ++sent_;
        RETURN_IF_ERROR(add(length, kLongOutput));
        tally_.prompt_tokens += length;
      }
      RETURN_IF_ERROR(step());
    }
    tally_.seconds += to_seconds(clock_.now() - start);
    engine_.cancel_all();
    while (engine_.has_work()) RETURN_IF_ERROR(engine_.step());
    return {};
  }

 private:
  Status add(int prompt_tokens, int output_tokens) {
    Request request;
    request.id = next_id_++;
    for (int i = 0; i < prompt_tokens; ++i) {
      request.prompt.push_back(static_cast<TokenId>(
          rng_.below(static_cast<std::uint64_t>(engine_.limits().vocab_size))));
    }
    request.arrival = clock_.now();
    request.sampling.max_tokens = output_tokens;
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    return engine_.add_request(std::move(request));
  }

  Status step() {
    ASSIGN_OR_RETURN(const auto outputs, engine_.step());
    const TimePoint now = clock_.now();
    for (const ChoiceOutput& output : outputs) {
      const bool stream = output.request <= static_cast<RequestId>(options_.streams);
      if (!stream) {
        done_ += output.finish_reason != FinishReason::kNone ? 1 : 0;
        continue;
      }
      const auto [last, first] = last_token_.try_emplace(output.request, now);
      if (counting_ && !first) {
        tally_.gaps.push_back(to_milliseconds(now - last->second));
        ++tally_.stream_tokens;
      }
      last->second = now;
    }
    return {};
  }

  const Options& options_;
  Engine& engine_;
  const Clock& clock_;
  Tally& tally_;
  SplitMix64 rng_{5};
  RequestId next_id_ = 1;
  int sent_ = 0;
  int done_ = 0;
  bool counting_ = false;
  std::unordered_map<RequestId, TimePoint> last_token_;
};

Result<MachineProfile> find_profile(const Options& options, Device& device, ThreadPool& pool,
                                    const Clock& clock) {
  if (!options.profile.empty()) {
    auto kept = load_profile(options.profile);
    if (kept) return kept;
  }
  MeasureOptions measure;
  measure.max_tokens = kMostTokens;
  measure.profiler.time_limit = std::chrono::seconds(options.profile_seconds);
  ASSIGN_OR_RETURN(MachineProfile profile,
                   measure_machine(options.model, options.engine(), device, pool, clock, measure));
  if (!options.profile.empty()) RETURN_IF_ERROR(save_profile(profile, options.profile));
  return profile;
}

// "256" or "time:120".
Result<EngineOptions> configure(const Options& options, const std::string& budget,
                                const MachineProfile& profile) {
  EngineOptions engine = options.engine();
  constexpr std::string_view kTime = "time:";
  if (!budget.starts_with(kTime)) {
    ASSIGN_OR_RETURN(const std::int64_t tokens, parse_integer("budget", budget, 1, 1 << 16));
    engine.token_budget = static_cast<std::int32_t>(tokens);
    return engine;
  }
  ASSIGN_OR_RETURN(const std::int64_t ms,
                   parse_integer("time goal", budget.substr(kTime.size()), 1, 100'000));
  TimeBudget time;
  time.predictor = profile.predictor;
  time.tbt = std::chrono::milliseconds(ms);
  time.longest_step = time.tbt;
  time.shortest_step = time.tbt / 4;
  time.min_chunk = least_chunk(profile);
  engine.token_budget = kMostTokens;
  engine.time_budget = time;
  return engine;
}

double quantile(const std::vector<double>& sorted, double q) {
  return sorted[static_cast<std::size_t>(q * static_cast<double>(sorted.size() - 1))];
}

void print(const std::string& budget, Tally& tally) {
  std::sort(tally.gaps.begin(), tally.gaps.end());
  fmt::print("| {} | {:.0f} | {:.0f} | {:.0f} | {:.1f} | {:.1f} | {} |\n", budget,
             quantile(tally.gaps, 0.5), quantile(tally.gaps, 0.99), tally.gaps.back(),
             static_cast<double>(tally.prompt_tokens) / tally.seconds,
             static_cast<double>(tally.stream_tokens) / tally.seconds, tally.gaps.size());
}

Status run(const Options& options) {
  const CpuClock clock;
  const EngineOptions plain = options.engine();
  const auto pool = make_pool(plain);
  ASSIGN_OR_RETURN(const auto device, make_device(plain, *pool));
  ASSIGN_OR_RETURN(const MachineProfile profile, find_profile(options, *device, *pool, clock));
  fmt::print("profile: {} points, held-out error median {:.1f} %, P90 {:.1f} %, tile {}\n",
             profile.points.size(), 100 * profile.error.median, 100 * profile.error.p90,
             profile.predictor.tile);
  std::vector<Tally> tallies(options.budgets.size());
  for (int round = 0; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < tallies.size(); ++i) {
      ASSIGN_OR_RETURN(const EngineOptions engine, configure(options, options.budgets[i], profile));
      StartupTimeline timeline(clock);
      ASSIGN_OR_RETURN(LoadedEngine loaded,
                       load_engine(options.model, engine, *device, *pool, clock, timeline));
      RETURN_IF_ERROR(Run(options, *loaded.engine, clock, tallies[i]).run());
      fmt::print(stderr, "round {}, {}: {:.0f} s\n", round + 1, options.budgets[i],
                 tallies[i].seconds);
    }
  }
  fmt::print(
      "| budget | median TBT ms | P99 TBT ms | longest | prompt tokens/s | stream tokens/s | gaps "
      "|\n|---|---|---|---|---|---|---|\n");
  for (std::size_t i = 0; i < tallies.size(); ++i) print(options.budgets[i], tallies[i]);
  return {};
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  sluice::bench::Options options;
  CLI::App app("Token budgets against time budgets");
  app.add_option("model", options.model, "checkpoint directory")->required();
  app.add_option("budgets", options.budgets, "TOKENS or time:GOAL_MS")->capture_default_str();
  app.add_option("--streams", options.streams)->capture_default_str();
  app.add_option("--prompts", options.prompts, "long prompts of a run")->capture_default_str();
  app.add_option("--shortest", options.shortest, "of the long prompts")->capture_default_str();
  app.add_option("--longest", options.longest)->capture_default_str();
  app.add_option("--rounds", options.rounds)->capture_default_str();
  app.add_option("--profile", options.profile, "file to keep the profile in");
  app.add_option("--profile-seconds", options.profile_seconds)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (const auto status = sluice::bench::run(options); !status) {
    fmt::print(stderr, "budget_bench: {}\n", status.error().message);
    return 1;
  }
  return 0;
}
