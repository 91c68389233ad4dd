#include "sim/simulated_profile.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "profile/profiler.h"
#include "profile/step_runner.h"
#include "scheduler/executor.h"
#include "sim/simulated_executor.h"

namespace sluice {
namespace {

constexpr std::int32_t kVocab = 32000;  // of the token ids that the profiler generates

// Runs a step without waiting and advances the clock by the step's cost.
class NoisyMachine final : public Executor {
 public:
  NoisyMachine(StepCost& cost, ManualClock& clock, double noise, std::uint64_t seed)
      : cost_(cost), clock_(clock), noise_(noise), random_(seed) {}

  int max_in_flight() const override { return 1; }

  Status submit(const BatchPlan& plan) override {
    plan_ = &plan;
    const auto time = static_cast<double>(step_latency(cost_, plan).count());
    const double factor = 1 + noise_ * (2 * random_.uniform() - 1);
    clock_.advance(Duration(std::llround(time * factor)));
    return {};
  }

  Status collect(StepResult& out) override {
    answer_step(*plan_, out);
    return {};
  }

 private:
  StepCost& cost_;
  ManualClock& clock_;
  double noise_;
  SplitMix64 random_;
  const BatchPlan* plan_ = nullptr;
};

void distort(StepTimePredictor& p, double scale, double skew, SplitMix64& random) {
  const auto factor = [&] { return scale * std::pow(1 + skew, 2 * random.uniform() - 1); };
  const auto last = static_cast<std::size_t>(p.num_knots) - 1;
  double before = p.knots[0].ns;  // as fitted
  p.knots[0].ns *= factor();
  for (std::size_t i = 1; i <= last; ++i) {
    const double piece = p.knots[i].ns - before;
    before = p.knots[i].ns;
    p.knots[i].ns = p.knots[i - 1].ns + factor() * piece;
  }
  for (double* coefficient :
       {&p.tile_ns, &p.chunk_token_ns, &p.row_ns, &p.logits_ns, &p.logit_row_ns,
        &p.decode_context_ns, &p.chunk_work_ns, &p.chunk_context_ns}) {
    *coefficient *= factor();
  }
}

}  // namespace

Result<MachineProfile> profile_simulated(StepCost& cost, const SimulatedProfileOptions& options) {
  ManualClock clock;
  NoisyMachine machine(cost, clock, options.noise, options.seed);
  const StepLimits limits{options.kv, options.max_tokens, kVocab};
  StepRunner runner(limits, machine, clock);
  ProfilerOptions profiler;
  profiler.time_limit = std::chrono::hours(24);  // of virtual time
  profiler.seed = options.seed + 1;
  MachineProfile profile;
  profile.identity.device = "simulated";
  profile.max_num_seqs = options.kv.max_num_seqs;
  profile.max_model_len = options.kv.max_model_len;
  profile.max_tokens = options.max_tokens;
  ASSIGN_OR_RETURN(profile.points,
                   measure_points(runner, profile_grid(runner, limits), profiler, clock,
                                  [](const ProfilerProgress&) { return true; }));
  profile.predictor.window =
      *std::max_element(options.kv.group_windows.begin(), options.kv.group_windows.end());
  RETURN_IF_ERROR(fit_profile(profile));
  SplitMix64 random(options.seed + 2);
  distort(profile.predictor, options.scale, options.skew, random);
  profile.error = prediction_error(profile);
  return profile;
}

}  // namespace sluice
