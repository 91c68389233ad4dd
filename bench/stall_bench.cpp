// The effect of a long prompt on running streams, on the real engine, by policy:
//   stall_bench MODEL [--streams 16] [--prompt 4000] [--output 160] [--threads N]
//               [POLICY[:BUDGET]]...
// Each policy runs the same requests: so many streams decode, then the long prompt arrives. Shown
// are the longest gap between two tokens of any stream, alone and with the long prompt, the TTFT of
// the long prompt, and the time until all is done. docs/scheduling.md says how to read it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>  // tidy: allow(heavy-header) a program of its own
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "apps/make_device.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "engine/engine_loader.h"

namespace sluice::bench {
namespace {

constexpr int kStreamPrompt = 32;
constexpr int kLongOutput = 16;
constexpr int kTokensBeforeIt = 16;  // of every stream, before the long prompt arrives

struct Options {
  std::string model;
  std::vector<std::string> policies = {"prefill-first", "stall-free:512", "stall-free:64"};
  int streams = 16;
  int prompt = 4000;
  int output = 160;
  int threads = available_cpus();
};

struct Run {
  Duration longest_gap{0};
  Duration ttft{0};  // of the long prompt
  Duration makespan{0};
};

// One engine under one policy.
class Bench {
 public:
  static Result<std::unique_ptr<Bench>> load(const Options& options, const std::string& policy,
                                             std::int32_t budget) {
    auto bench = std::unique_ptr<Bench>(new Bench(options));
    EngineOptions engine_options;
    engine_options.scheduler = policy;
    engine_options.token_budget = budget;
    engine_options.max_num_seqs = options.streams + 1;
    engine_options.max_model_len = options.prompt + 2 * options.output;
    engine_options.threads = options.threads;
    engine_options.prefix_caching = PrefixCaching::kOff;
    bench->pool_ = make_pool(engine_options);
    ASSIGN_OR_RETURN(bench->device_, make_device(engine_options, *bench->pool_));
    StartupTimeline timeline(bench->clock_);
    ASSIGN_OR_RETURN(LoadedEngine loaded,
                     load_engine(options.model, engine_options, *bench->device_, *bench->pool_,
                                 bench->clock_, timeline));
    bench->engine_ = std::move(loaded.engine);
    return bench;
  }

  Result<Run> run(bool with_long_prompt) {
    last_token_.clear();
    long_id_ = 0;
    Run run;
    const TimePoint start = clock_.now();
    for (int i = 0; i < options_.streams; ++i) {
      RETURN_IF_ERROR(add(kStreamPrompt, options_.output));
    }
    std::int64_t tokens = 0;
    std::optional<TimePoint> steady;  // all streams decode; the long prompt arrives
    while (engine_->has_work()) {
      if (!steady && tokens >= std::int64_t{kTokensBeforeIt} * options_.streams) {
        steady = clock_.now();
        long_id_ = next_id_;
        if (with_long_prompt) RETURN_IF_ERROR(add(options_.prompt, kLongOutput));
      }
      ASSIGN_OR_RETURN(const auto outputs, engine_->step());
      const TimePoint now = clock_.now();
      for (const ChoiceOutput& output : outputs) tokens += note(output, now, steady, run);
    }
    run.makespan = clock_.now() - start;
    return run;
  }

 private:
  explicit Bench(const Options& options) : options_(options) {}

  Status add(int prompt_tokens, int output_tokens) {
    Request request;
    request.id = next_id_++;
    for (int i = 0; i < prompt_tokens; ++i) {
      request.prompt.push_back(static_cast<TokenId>(
          rng_.below(static_cast<std::uint64_t>(engine_->limits().vocab_size))));
    }
    request.arrival = clock_.now();
    request.sampling.max_tokens = output_tokens;
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    return engine_->add_request(std::move(request));
  }

  std::int64_t note(const ChoiceOutput& output, TimePoint now, std::optional<TimePoint> steady,
                    Run& run) {
    if (output.tokens.empty()) return 0;
    if (output.request == long_id_) {
      if (run.ttft == Duration{0}) run.ttft = now - *steady;
      return 0;
    }
    const auto [last, first] = last_token_.try_emplace(output.request, now);
    if (!first && steady) run.longest_gap = std::max(run.longest_gap, now - last->second);
    last->second = now;
    return static_cast<std::int64_t>(output.tokens.size());
  }

  const Options& options_;
  const SystemClock clock_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Engine> engine_;
  SplitMix64 rng_{5};
  RequestId next_id_ = 1;
  RequestId long_id_ = 0;
  std::unordered_map<RequestId, TimePoint> last_token_;
};

Status run(const Options& options) {
  fmt::print(
      "| policy | longest gap alone | with the long prompt | ratio | its TTFT | makespan |\n"
      "|---|---|---|---|---|---|\n");
  for (const std::string& spec : options.policies) {
    // "hybrid:max-tokens" has a colon of its own.
    std::string policy = spec;
    std::int32_t budget = 512;
    const std::size_t colon = spec.rfind(':');
    if (colon != std::string::npos && colon + 1 < spec.size() &&
        spec.find_first_not_of("0123456789", colon + 1) == std::string::npos) {
      policy = spec.substr(0, colon);
      budget = static_cast<std::int32_t>(std::stoi(spec.substr(colon + 1)));
    }
    ASSIGN_OR_RETURN(const std::unique_ptr<Bench> bench, Bench::load(options, policy, budget));
    RETURN_IF_ERROR(bench->run(false));  // pages of weights are touched once
    ASSIGN_OR_RETURN(const Run alone, bench->run(false));
    ASSIGN_OR_RETURN(const Run both, bench->run(true));
    fmt::print("| {} | {:.0f} ms | {:.0f} ms | {:.2f} | {:.1f} s | {:.1f} s |\n", spec,
               to_milliseconds(alone.longest_gap), to_milliseconds(both.longest_gap),
               to_milliseconds(both.longest_gap) / to_milliseconds(alone.longest_gap),
               to_milliseconds(both.ttft) / 1e3, to_milliseconds(both.makespan) / 1e3);
    std::fflush(stdout);
  }
  return {};
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  sluice::bench::Options options;
  CLI::App app("The effect of a long prompt on running streams, by policy");
  app.add_option("model", options.model, "checkpoint directory")->required();
  app.add_option("policies", options.policies, "POLICY or POLICY:BUDGET")->capture_default_str();
  app.add_option("--streams", options.streams)->capture_default_str();
  app.add_option("--prompt", options.prompt, "tokens of the long prompt")->capture_default_str();
  app.add_option("--output", options.output, "tokens of every stream")->capture_default_str();
  app.add_option("--threads", options.threads)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (const auto status = sluice::bench::run(options); !status) {
    fmt::print(stderr, "stall_bench: {}\n", status.error().message);
    return 1;
  }
  return 0;
}
