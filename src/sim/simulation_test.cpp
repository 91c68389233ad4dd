// Whole runs: determinism, conservation, and what a step time means for a request.
#include "sim/simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "scheduler/policy.h"
#include "sim/cost_model.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;

// Every stage of every step takes a fixed time, and one more for each token.
class EvenCost final : public StepCost {
 public:
  explicit EvenCost(std::int32_t stages = 1, Duration step = milliseconds(10),
                    Duration token = Duration(0))
      : stages_(stages), step_(step), token_(token) {}
  std::int32_t num_stages() const override { return stages_; }
  void stage_times(const BatchPlan& plan, std::span<Duration> stages) override {
    std::int32_t tokens = 0;
    for (const PlanRow& row : plan.rows) tokens += row.query_len;
    for (Duration& stage : stages) stage = step_ + tokens * token_;
    largest = std::max(largest, tokens);
    for (const PlanRow& row : plan.rows) computed[row.sequence] += row.query_len;
  }
  Duration send_time(const BatchPlan&) const override { return Duration(0); }

  std::int32_t largest = 0;
  std::map<SequenceId, std::int32_t> computed;

 private:
  std::int32_t stages_;
  Duration step_;
  Duration token_;
};

SimulationOptions small_options(std::string_view scheduler = "stall-free") {
  SimulationOptions options;
  options.replica.scheduler = scheduler;
  options.replica.token_budget = 64;
  options.replica.max_num_seqs = 16;
  options.replica.max_model_len = 512;
  options.replica.num_blocks = 400;
  return options;
}

Workload some_requests(std::int32_t count, Duration gap) {
  Workload workload;
  for (std::int32_t i = 0; i < count; ++i) {
    workload.requests.push_back({.arrival = i * gap,
                                 .prompt_tokens = 1 + (i * 37) % 250,
                                 .output_tokens = 1 + (i * 11) % 60,
                                 .prefix_pieces = {}});
  }
  return workload;
}

std::int64_t outputs(const Workload& workload) {
  std::int64_t sum = 0;
  for (const WorkloadRequest& r : workload.requests) sum += r.output_tokens;
  return sum;
}

TEST(Simulation, OneRequestTakesItsSteps) {
  Workload workload;
  workload.requests.push_back(
      {.arrival = milliseconds(5), .prompt_tokens = 200, .output_tokens = 21, .prefix_pieces = {}});
  EvenCost cost;
  const SimulationResult r = simulate(workload, small_options(), cost).value();
  // Four chunks of at most 64 tokens; the last gives the first token.
  EXPECT_EQ(r.stats.steps, 4 + 20);
  EXPECT_EQ(r.summary.completed, 1);
  EXPECT_EQ(r.summary.ttft.greatest(), milliseconds(40));
  EXPECT_EQ(r.summary.e2el.greatest(), milliseconds(240));
  EXPECT_EQ(r.summary.duration, milliseconds(245));
  EXPECT_EQ(r.summary.tbt.count(), 20);
  EXPECT_EQ(r.summary.tbt.least(), milliseconds(10));
  EXPECT_EQ(r.summary.tbt.greatest(), milliseconds(10));
  EXPECT_EQ(r.summary.scheduling_delay.greatest(), Duration(0));
  EXPECT_EQ(r.stats.tokens, 200 + 20);
}

// In a pipeline alone, a request's next token waits for the last one to leave.
TEST(Simulation, OneRequestInAPipelineTakesTheSumOfItsStages) {
  Workload workload;
  workload.requests.push_back(
      {.arrival = Duration(0), .prompt_tokens = 60, .output_tokens = 6, .prefix_pieces = {}});
  EvenCost cost(3);
  const SimulationResult r = simulate(workload, small_options(), cost).value();
  EXPECT_EQ(r.summary.e2el.greatest(), milliseconds(6 * 30));
  EXPECT_EQ(r.stats.pipeline.bubbles(), Duration(0));
}

// Requests that arrive during a step join the next one.
TEST(Simulation, ArrivalsWaitForTheStepInFlight) {
  Workload workload = some_requests(2, milliseconds(3));
  for (WorkloadRequest& r : workload.requests) r.prompt_tokens = r.output_tokens = 4;
  EvenCost cost;
  const SimulationResult r = simulate(workload, small_options(), cost).value();
  EXPECT_EQ(r.summary.scheduling_delay.greatest(), milliseconds(7));
  EXPECT_EQ(r.summary.duration, milliseconds(50));
  EXPECT_EQ(r.stats.steps, 5);
}

TEST(Simulation, ArrivalsAtOneMomentShareAStep) {
  Workload workload = some_requests(3, Duration(0));
  for (WorkloadRequest& r : workload.requests) r.prompt_tokens = r.output_tokens = 4;
  EvenCost cost;
  EXPECT_EQ(simulate(workload, small_options(), cost).value().stats.steps, 4);
}

// Every policy, one and several stages, memory that is short: all requests end with their tokens.
TEST(Simulation, NothingIsLost) {
  const Workload workload = some_requests(120, milliseconds(4));
  for (const std::string_view policy : policy_names()) {
    for (const std::int32_t stages : {1, 2, 3}) {
      SimulationOptions options = small_options(policy);
      options.replica.num_blocks = 60;
      EvenCost cost(stages, milliseconds(5), std::chrono::microseconds(20));
      const SimulationResult r = simulate(workload, options, cost).value();
      EXPECT_EQ(r.summary.completed, 120) << policy << stages;
      EXPECT_EQ(r.summary.failed + r.summary.unfinished, 0) << policy << stages;
      EXPECT_EQ(r.summary.total_output_tokens, outputs(workload)) << policy << stages;
      EXPECT_EQ(r.summary.tbt.count(), outputs(workload) - 120) << policy << stages;
      EXPECT_EQ(r.summary.ttft.count(), 120) << policy << stages;
      EXPECT_LE(cost.largest, max_step_tokens(options.replica)) << policy << stages;
      if (r.stats.preemptions > 0) continue;
      for (const auto& [id, tokens] : cost.computed) {
        const WorkloadRequest& asked = workload.requests[static_cast<std::size_t>(id - 1)];
        EXPECT_EQ(tokens, asked.prompt_tokens + asked.output_tokens - 1) << policy << stages;
      }
    }
  }
}

TEST(Simulation, SameSeedSameResult) {
  const Workload workload = some_requests(200, milliseconds(3));
  const auto text = [&] {
    Deployment d;
    d.gpu = find_gpu("a40").value();
    d.model = find_model_shape("llama-3-8b").value();
    d.pp = 2;
    d.host = find_host_stack("native").value();
    CostModel cost(d);
    SimulationOptions options = small_options();
    options.replicas = 2;
    options.dispatch = Dispatch::kLeastLoaded;
    const SimulationResult r = simulate(workload, options, cost).value();
    return summary_json(r.summary, {50, 90, 99}, {}) +
           std::to_string(r.stats.pipeline.busy.count()) + "," +
           std::to_string(r.stats.pipeline.bubbles().count());
  };
  EXPECT_EQ(text(), text());
}

// Figures of one run to the nanosecond: a change of the hardware model, a policy or the loop
// shows here, and its commit says so.
// Jitter changes each step, and over many steps nothing.
TEST(Simulation, StepsJitterAsTheirSeedSays) {
  const Workload workload = some_requests(300, Duration(0));
  const auto run = [&](double jitter, std::uint64_t seed) {
    SimulationOptions options = small_options();
    options.replica.step_jitter = jitter;
    options.replica.seed = seed;
    EvenCost cost;
    return simulate(workload, options, cost).value().summary;
  };
  const auto even = run(0, 1);
  const auto uneven = run(0.2, 1);
  EXPECT_EQ(even.tbt.percentile(90), milliseconds(10));
  EXPECT_GT(uneven.tbt.percentile(90), milliseconds(11));
  EXPECT_LE(uneven.tbt.percentile(100), milliseconds(12));
  EXPECT_EQ(run(0.2, 1).duration, uneven.duration);
  EXPECT_NE(run(0.2, 2).duration, uneven.duration);
  EXPECT_NEAR(to_milliseconds(uneven.duration), to_milliseconds(even.duration),
              0.02 * to_milliseconds(even.duration));
}

TEST(Simulation, ARunOnHardwareIsTheRecordedOne) {
  const Workload workload = some_requests(60, milliseconds(20));
  const auto run = [&](std::string_view gpu, std::int32_t pp) {
    Deployment d;
    d.gpu = find_gpu(gpu).value();
    d.model = find_model_shape("mistral-7b").value();
    d.pp = pp;
    d.host = find_host_stack("python").value();
    CostModel cost(d);
    const SimulationResult r = simulate(workload, small_options(), cost).value();
    return std::vector<std::int64_t>{r.stats.steps, r.summary.duration.count(),
                                     r.stats.pipeline.bubbles().count()};
  };
  EXPECT_THAT(run("a100-80g", 1), testing::ElementsAre(192, 4666100000, 0));
  EXPECT_THAT(run("a40", 2), testing::ElementsAre(318, 6071123801, 158276558));
}

// A tiny run by hand: two prompts of 6 and 4 tokens, budget 4, each step 10 ms.
TEST(Simulation, ATinyRunIsAsByHand) {
  Workload workload;
  workload.requests.push_back({Duration(0), 6, 3, {}});
  workload.requests.push_back({milliseconds(1), 4, 2, {}});
  SimulationOptions options = small_options();
  options.replica.token_budget = 4;
  EvenCost cost;
  const SimulationResult r = simulate(workload, options, cost).value();
  // 0: A 4. 10: A 2 (first token at 20), B 2. 20: A 1, B 2 (first token at 30). 30: A 1, B 1.
  EXPECT_EQ(r.stats.steps, 4);
  EXPECT_EQ(r.stats.tokens, 4 + 4 + 3 + 2);
  EXPECT_EQ(r.summary.duration, milliseconds(40));
  EXPECT_EQ(r.summary.ttft.least(), milliseconds(20));
  EXPECT_EQ(r.summary.ttft.greatest(), milliseconds(29));
  EXPECT_EQ(r.summary.scheduling_delay.greatest(), milliseconds(9));
  EXPECT_EQ(r.summary.tbt.count(), 3);
}

// The stall that the paper is about: a long prompt stops the decodes of prefill-first, not those
// of stall-free.
TEST(Simulation, StallFreeDoesNotStall) {
  Workload workload;
  for (int i = 0; i < 8; ++i) workload.requests.push_back({Duration(0), 10, 60, {}});
  workload.requests.push_back({milliseconds(50), 480, 5, {}});
  const auto longest_gap = [&](std::string_view policy) {
    EvenCost cost(1, milliseconds(1), std::chrono::microseconds(100));
    return simulate(workload, small_options(policy), cost).value().summary.tbt.greatest();
  };
  // The step of 480 prompt tokens, and then a decode; against a step of 64 tokens.
  EXPECT_GE(longest_gap("prefill-first"), milliseconds(49));
  EXPECT_LE(longest_gap("stall-free"), milliseconds(8));
}

Duration mean_ttft(const Workload& workload, std::int32_t replicas, Dispatch dispatch) {
  SimulationOptions options = small_options();
  options.replicas = replicas;
  options.dispatch = dispatch;
  EvenCost cost(1, milliseconds(5), std::chrono::microseconds(100));
  const SimulationResult r = simulate(workload, options, cost).value();
  EXPECT_EQ(r.summary.completed, static_cast<std::int64_t>(workload.requests.size()));
  EXPECT_EQ(r.summary.total_output_tokens, outputs(workload));
  return r.summary.ttft.mean();
}

TEST(Simulation, ReplicasShareTheRequests) {
  const Workload workload = some_requests(200, milliseconds(2));
  const Duration one = mean_ttft(workload, 1, Dispatch::kRoundRobin);
  EXPECT_LT(mean_ttft(workload, 4, Dispatch::kRoundRobin), one / 4);
  EXPECT_LT(mean_ttft(workload, 4, Dispatch::kLeastLoaded), one / 4);
}

// When every other request is long, taking turns gives all of those to one replica.
TEST(Simulation, AnAutoscalersMachineTakesABurstsSurplus) {
  // 2 requests per second, 10 from second 10 to 20; a machine can compute about 3.
  Workload workload;
  for (int tenths = 0; tenths < 600; tenths += tenths >= 100 && tenths < 200 ? 1 : 5) {
    workload.requests.push_back({.arrival = milliseconds(100 * tenths),
                                 .prompt_tokens = 64,
                                 .output_tokens = 40,
                                 .prefix_pieces = {}});
  }
  EvenCost cost;
  SimulationOptions options = small_options();
  options.replica.max_num_seqs = 1;
  const auto alone = simulate(workload, options, cost);
  options.autoscale = AutoscaleOptions{
      .rate = 2, .check = std::chrono::seconds(1), .start = std::chrono::seconds(2)};
  const auto scaled = simulate(workload, options, cost);
  ASSERT_TRUE(alone && scaled);
  const auto all = static_cast<std::int64_t>(workload.requests.size());
  EXPECT_EQ(alone->redirected, 0);
  EXPECT_EQ(scaled->summary.completed, all);
  EXPECT_NEAR(static_cast<double>(scaled->redirected), 80, 3);  // 8 per second for 10 seconds
  EXPECT_LT(scaled->summary.ttft.greatest(), alone->summary.ttft.greatest());
}

// Requests of 10 steps of 10 ms, one a second for three seconds, then eight at once.
TEST(Simulation, InstancesStartWhenRequestsFindNoRoom) {
  Workload workload;
  for (int i = 0; i < 11; ++i) {
    workload.requests.push_back({.arrival = std::chrono::seconds(std::min(i, 3)),
                                 .prompt_tokens = 8,
                                 .output_tokens = 10,
                                 .prefix_pieces = {}});
  }
  EvenCost cost;
  SimulationOptions options = small_options();
  options.instances = InstanceOptions{
      .most = 2, .room = 3, .start = milliseconds(500), .idle = std::chrono::seconds(5)};
  const auto kept = simulate(workload, options, cost);
  options.instances->idle = Duration(0);
  const auto ended = simulate(workload, options, cost);
  options.replicas = 2;
  EXPECT_FALSE(simulate(workload, options, cost));
  ASSERT_TRUE(kept && ended);
  EXPECT_EQ(kept->summary.completed, 11);
  EXPECT_EQ(ended->summary.completed, 11);
  // The first request starts one. Three of the eight have room there, and the others start the
  // second and wait for it, or for both when these are full.
  EXPECT_EQ(kept->starts, 2);
  EXPECT_EQ(kept->summary.ttft.greatest(), milliseconds(510));
  EXPECT_EQ(kept->summary.ttft.least(), milliseconds(10));
  // Each request of the first three seconds finds that the one before has ended.
  EXPECT_EQ(ended->starts, 3 + 2);
  EXPECT_EQ(ended->summary.ttft.least(), milliseconds(510));
}

TEST(Simulation, InstancesAreParsed) {
  const auto full = parse_instances("4,16,2.5,30");
  ASSERT_TRUE(full);
  EXPECT_EQ(full->most, 4);
  EXPECT_EQ(full->room, 16);
  EXPECT_EQ(full->start, milliseconds(2500));
  EXPECT_EQ(full->idle, std::chrono::seconds(30));
  EXPECT_EQ(parse_instances("1,1,0")->idle, Duration(0));
  for (const char* text : {"", "4", "4,16", "0,1,1", "1.5,1,1", "4,16,-1", "4,16,1,", "4,16,1,2,3",
                           "4,16,x", "4,16,nan", "4,16,1e9"}) {
    const auto bad = parse_instances(text);
    ASSERT_FALSE(bad) << text;
    EXPECT_NE(bad.error().message.find(text), std::string::npos);
  }
}

TEST(Simulation, TheLeastLoadedReplicaIsTheOneWithLeastToDo) {
  Workload workload = some_requests(200, milliseconds(40));
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    workload.requests[i].prompt_tokens = i % 2 == 0 ? 400 : 10;
    workload.requests[i].output_tokens = i % 2 == 0 ? 100 : 2;
  }
  EXPECT_LT(mean_ttft(workload, 2, Dispatch::kLeastLoaded),
            mean_ttft(workload, 2, Dispatch::kRoundRobin) * 3 / 4);
}

TEST(Simulation, SharedPrefixesAreComputedOnce) {
  Workload workload;
  for (int i = 0; i < 4; ++i) {
    workload.requests.push_back({milliseconds(500 * i), 1200, 2, {7, 8, 100u + unsigned(i)}});
  }
  SimulationOptions options = small_options();
  options.replica.max_model_len = 2048;
  EvenCost cost;
  const SimulationResult r = simulate(workload, options, cost).value();
  EXPECT_EQ(r.stats.cached_tokens, 3 * 1024);
  workload.requests[1].prefix_pieces = {6, 8, 7};  // the same names after another beginning
  EXPECT_EQ(simulate(workload, options, cost).value().stats.cached_tokens, 2 * 1024);
}

TEST(Simulation, TheMostMemoryInUseIsCounted) {
  // Three requests of 64 and 17 tokens: 81 positions less the last token's, five blocks of 16 each.
  Workload workload;
  for (int i = 0; i < 3; ++i) {
    workload.requests.push_back({.prompt_tokens = 64, .output_tokens = 17, .prefix_pieces = {}});
  }
  EvenCost cost;
  SimulationOptions options = small_options();
  EXPECT_EQ(simulate(workload, options, cost)->stats.peak_held_blocks, 15);
  EXPECT_EQ(simulate(workload, options, cost)->stats.peak_started_blocks, 15);
  // One after the other, they need the memory of one.
  for (std::size_t i = 0; i < 3; ++i) {
    workload.requests[i].arrival = std::chrono::seconds(10 * static_cast<int>(i));
  }
  EXPECT_EQ(simulate(workload, options, cost)->stats.peak_held_blocks, 5);
  EXPECT_EQ(simulate(workload, options, cost)->stats.peak_started_blocks, 5);
  // When they take turns in the memory of two and a half, those that were displaced count too.
  for (WorkloadRequest& request : workload.requests) {
    request.arrival = Duration(0);
    request.output_tokens = 257;  // 20 blocks
  }
  options = small_options("fair");
  options.replica.num_blocks = 51;
  options.replica.turn_tokens = 16;
  const auto turns = simulate(workload, options, cost);
  ASSERT_TRUE(turns);
  EXPECT_EQ(turns->summary.completed, 3);
  EXPECT_LE(turns->stats.peak_held_blocks, 50);
  EXPECT_GT(turns->stats.peak_started_blocks, 50);
  EXPECT_LE(turns->stats.peak_started_blocks, 60);
}

TEST(Simulation, RequestsThatCannotRunAreFailures) {
  Workload workload = some_requests(3, milliseconds(1));
  workload.requests[1].prompt_tokens = 600;  // beyond the context
  EvenCost cost;
  const SimulationResult r = simulate(workload, small_options(), cost).value();
  EXPECT_EQ(r.summary.completed, 2);
  EXPECT_EQ(r.summary.failed, 1);
}

TEST(Simulation, ItCanBeStopped) {
  EvenCost cost;
  const auto stopped = simulate(some_requests(3, milliseconds(1)), small_options(), cost,
                                [](double) { return false; });
  ASSERT_FALSE(stopped.has_value());
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
}

TEST(Simulation, OptionsOutOfRangeAreNamed) {
  EvenCost cost;
  const auto message = [&](const SimulationOptions& options) {
    return simulate(some_requests(1, Duration(0)), options, cost).error().message;
  };
  SimulationOptions options = small_options("fifo");
  EXPECT_THAT(message(options), testing::HasSubstr("scheduler 'fifo' is unknown"));
  options = small_options();
  options.replica.max_num_seqs = 0;
  EXPECT_THAT(message(options), testing::HasSubstr("max_num_seqs must be at least 1"));
  options = small_options();
  options.replicas = 0;
  EXPECT_THAT(message(options), testing::HasSubstr("replicas must be at least 1"));
  EXPECT_THAT(find_dispatch("random").error().message,
              testing::HasSubstr("round-robin, least-loaded"));
}

TEST(Simulation, TheBudgetIsTheLargestWithinTheSlo) {
  EvenCost cost(1, milliseconds(10), std::chrono::microseconds(100));
  const std::vector<std::int32_t> candidates = {128, 256, 512, 1024};
  EXPECT_EQ(budget_within(cost, milliseconds(61), 32, 4096, candidates), 256);
  EXPECT_EQ(budget_within(cost, milliseconds(500), 32, 4096, candidates), 1024);
  EXPECT_EQ(budget_within(cost, milliseconds(20), 32, 4096, candidates), std::nullopt);
}

// Llama-3-8B with rank 16 on all matrices: 42 million parameters, as PEFT counts them.
TEST(Simulation, AnAdapterLoadTakesItsBytesOverTheLink) {
  const GpuSpec gpu = find_gpu("a100-80g").value();
  const ModelShape model = find_model_shape("llama-3-8b").value();
  EXPECT_EQ(model.adapter_parameters(16), 41'943'040);
  const TransferCost load = adapter_load_cost(gpu, model.adapter_parameters(16) * 2);
  const double seconds = load.latency + load.adapter_bytes / load.bytes_per_second;
  EXPECT_NEAR(seconds, 8e-6 + 83.9e6 / 24e9, 1e-5);
  // A request of an adapter has its first token one load later than one of the base model.
  SimulationOptions options = small_options();
  options.replica.adapters = {.num_slots = 2, .num_adapters = 3};
  options.replica.transfers = load;
  Workload workload;
  WorkloadRequest request;
  request.prompt_tokens = 20;
  request.output_tokens = 2;
  workload.requests.push_back(request);
  request.adapter = 2;
  request.arrival = std::chrono::seconds(1);
  workload.requests.push_back(request);
  request.arrival = std::chrono::seconds(2);  // resident by then
  workload.requests.push_back(request);
  EvenCost cost;
  const SimulationResult r = simulate(workload, options, cost).value();
  EXPECT_EQ(r.stats.adapter_loads, 1);
  EXPECT_EQ(r.summary.completed, 3);
  EXPECT_EQ(r.summary.ttft.percentile(50), milliseconds(10));
  EXPECT_NEAR(to_seconds(r.summary.ttft.greatest()), 0.010 + seconds, 1e-6);
}

// Requests of 40 adapters on 4 slots under load: each ends, loads are far fewer than requests, and
// requests of the base model are not held up.
TEST(Simulation, ManyAdaptersOnFewSlotsAllFinish) {
  SimulationOptions options = small_options();
  options.replica.adapters = {.num_slots = 4, .num_adapters = 40, .turn = milliseconds(200)};
  options.replica.transfers = {.latency = 1e-3, .bytes_per_second = 1e9, .adapter_bytes = 20e6};
  Workload workload = some_requests(400, milliseconds(30));
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    workload.requests[i].adapter = i % 4 == 0 ? -1 : static_cast<std::int32_t>(i * i % 40);
  }
  EvenCost cost;
  const SimulationResult r = simulate(workload, options, cost).value();
  EXPECT_EQ(r.summary.completed, 400);
  EXPECT_LT(r.stats.adapter_loads, 200);
  EXPECT_GT(r.stats.adapter_loads, 30);
}

// 24 requests at once in memory for three of them.
SimulationResult burst(std::string_view scheduler, std::int32_t tier_pages, const TierCost& tier) {
  SimulationOptions options = small_options(scheduler);
  options.replica.token_budget = 256;
  options.replica.max_num_seqs = 32;
  options.replica.num_blocks = 61;
  options.replica.tier_pages = tier_pages;
  options.replica.tier = tier;
  Workload workload;
  for (int i = 0; i < 24; ++i) {
    workload.requests.push_back({.prompt_tokens = 64, .output_tokens = 200, .prefix_pieces = {}});
  }
  // Computing a token is far slower than moving it, so that no load is worth a computation.
  EvenCost cost(1, milliseconds(1), std::chrono::microseconds(500));
  const SimulationResult result = simulate(workload, options, cost).value();
  EXPECT_EQ(result.summary.completed, 24);
  return result;
}

// Chats of 2,048 tokens go on one after another. Memory has one of them, a tier the others.
SimulationResult chats(double load_of_token, std::int32_t meeting_tokens) {
  SimulationOptions options = small_options();
  options.replica.token_budget = 256;
  options.replica.max_model_len = 4096;
  options.replica.num_blocks = 200;
  options.replica.meeting_tokens = meeting_tokens;
  EvenCost cost(1, milliseconds(1), std::chrono::microseconds(500));
  if (load_of_token > 0) {
    options.replica.tier_pages = 2000;
    options.replica.tier = {.bytes_per_second = 1, .block_bytes = 16 * load_of_token};
  }
  Workload workload;
  constexpr int kPieces = 2048 / kPrefixPieceTokens;
  for (int i = 0; i < 40; ++i) {
    WorkloadRequest chat{.arrival = i * std::chrono::seconds(10),
                         .prompt_tokens = 2048 + 16,
                         .output_tokens = 1,
                         .prefix_pieces = {}};
    for (int piece = 0; piece < kPieces; ++piece) {
      chat.prefix_pieces.push_back(static_cast<std::uint64_t>(1 + i % 4));
    }
    workload.requests.push_back(chat);
  }
  return simulate(workload, options, cost).value();
}

double median_ttft(const SimulationResult& result) {
  EXPECT_EQ(result.summary.completed, 40);
  return 1e-9 * static_cast<double>(result.summary.ttft.percentile(50).count());
}

// A token takes half a millisecond to compute.
TEST(Simulation, ATierAsFastAsTheModelHalvesTheTimeOfBoth) {
  constexpr double kToken = 500e-6;
  const double computed = median_ttft(chats(0, 64));
  EXPECT_NEAR(computed, 2064 * kToken, 0.02);
  const double loaded = median_ttft(chats(kToken, 0));
  EXPECT_NEAR(loaded, 2064 * kToken, 0.02);
  const double met = median_ttft(chats(kToken, 64));
  EXPECT_GE(met, 0.5 * computed);
  EXPECT_LE(met, 0.55 * computed);
  // The parts follow the rates.
  EXPECT_NEAR(median_ttft(chats(kToken / 2, 64)), computed / 3, 0.06 * computed);
  EXPECT_NEAR(median_ttft(chats(kToken * 2, 64)), computed * 2 / 3, 0.06 * computed);
  // Beyond a factor of four, the faster side does all.
  EXPECT_NEAR(median_ttft(chats(kToken / 8, 64)), computed / 8, 0.02);
  EXPECT_NEAR(median_ttft(chats(kToken * 8, 64)), computed, 0.02);
}

TEST(Simulation, UnderFairATierSparesTheComputationOfWhatWasDisplaced) {
  constexpr std::int64_t kNeeded = 24 * (64 + 200 - 1);
  const SimulationResult first_come = burst("stall-free", 0, {});
  const SimulationResult without = burst("fair", 0, {});
  const SimulationResult free = burst("fair", 2000, {});
  EXPECT_EQ(free.stats.tokens, kNeeded);
  EXPECT_GT(without.stats.tokens, kNeeded);
  EXPECT_GT(free.stats.preemptions, 24);
  EXPECT_GT(free.stats.loaded_blocks, 0);
  EXPECT_LE(free.stats.saved_blocks, kNeeded / 16);  // each block once
  EXPECT_LT(free.summary.ttft.greatest(), first_come.summary.ttft.greatest() / 3);
  // A slow link costs time; the plans' tokens stay the same.
  const TierCost slow{.latency = 1e-3, .bytes_per_second = 5e9, .block_bytes = 5e6};
  const SimulationResult paged = burst("fair", 2000, slow);
  EXPECT_LT(paged.stats.tokens, kNeeded * 1.05);
  EXPECT_GT(paged.summary.duration, free.summary.duration);
}

}  // namespace
}  // namespace sluice
