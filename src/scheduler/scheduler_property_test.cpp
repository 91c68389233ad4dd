// Random lives of scheduler and KV bookkeeping, under every policy, against an oracle; what is
// checked is written in tests/support/scheduler_workload.h. SLUICE_SCHEDULER_STEPS=N runs a
// campaign of N steps, shared by the policies, from seed SLUICE_SCHEDULER_SEED on (default 1).
// SLUICE_MEETING_STEPS: the same for prompts that meet their loads, N steps for each policy.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "scheduler/policy.h"
#include "tests/support/scheduler_workload.h"

namespace sluice {
namespace {

std::int64_t number_from_environment(const char* name, std::int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

std::vector<std::string> policies() {
  std::vector<std::string> names = {"guessing"};
  for (const std::string_view name : policy_names()) names.emplace_back(name);
  return names;
}

WorkloadReport run_campaign(const std::string& policy, std::int64_t wanted, WorkloadKind kind) {
  auto seed = static_cast<std::uint64_t>(number_from_environment("SLUICE_SCHEDULER_SEED", 1));
  WorkloadReport total;
  while (total.steps < wanted) {
    const std::int64_t steps = std::min<std::int64_t>(300, wanted - total.steps);
    // A violation aborts; with SLUICE_SCHEDULER_TRACE the last line names the seed.
    if (std::getenv("SLUICE_SCHEDULER_TRACE") != nullptr) std::fprintf(stderr, "seed %lu\n", seed);
    SCOPED_TRACE(seed);
    total += run_scheduler_workload(policy, seed++, steps, kind);
  }
  return total;
}

bool splits_prompts(const std::string& policy) {
  return policy == "guessing" || make_policy(policy).value()->splits_prompts();
}

// The workloads must reach what they are for. Other seeds and shorter runs may miss a rare event,
// which says nothing about the scheduler.
void expect_events(const std::string& policy, const WorkloadReport& total, std::int64_t wanted) {
  if (wanted < 10'000 || std::getenv("SLUICE_SCHEDULER_SEED") != nullptr) return;
  const bool reserves = policy.starts_with("hybrid") && policy != "hybrid-only";
  if (!reserves && policy != "request-level") {
    EXPECT_GT(total.preemptions, wanted / 1000);
  }
  if (policy != "request-level" && policy != "fair") {
    EXPECT_GT(total.displaced, wanted / 5000);
  }
  EXPECT_GT(total.forced_tokens, wanted / 10);
  EXPECT_GT(total.copies, wanted / 1000);
  EXPECT_GT(total.cached_tokens, wanted / 100);
  EXPECT_GT(total.cancelled, wanted / 1000);
  EXPECT_GT(total.failed, 0);
  for (const std::int64_t events :
       {total.growths, total.refused_growths, total.shrinks, total.idle_releases,
        total.late_transfers, total.failed_transfers}) {
    EXPECT_GE(events, total.steps / 100);
  }
  EXPECT_GT(total.moved_blocks, wanted / 1000);
  EXPECT_GT(total.saved_blocks, wanted / 100);
  EXPECT_GT(total.loaded_blocks, wanted / 500);
  EXPECT_GT(total.failed_loads, 0);
  EXPECT_GT(total.tier_tokens, wanted / 500);
  EXPECT_GT(total.level_changes, wanted / 100);
  EXPECT_GT(total.fast_loads, wanted / 5000);
  EXPECT_GT(total.slow_loads, wanted / 5000);
  if (splits_prompts(policy)) {
    EXPECT_GT(total.met, wanted / 2000);
    EXPECT_GT(total.met_tokens, wanted / 1000);
  }
  EXPECT_GT(total.no_memory, 0);
  EXPECT_GE(total.most_pinned, 10);
  EXPECT_GT(total.ended_holds, 0);
  EXPECT_GT(total.unpins, 0);
  EXPECT_GT(total.pinned_plans, wanted / 100);
  EXPECT_GT(total.most_protected, 0);
  EXPECT_GT(total.no_adapter, 0);
  if (policy == "guessing") {
    EXPECT_GT(total.guessed_rows, wanted / 1000);
  } else {
    EXPECT_GT(total.piped_rows, wanted / 100);
  }
}

class SchedulerProperty : public testing::TestWithParam<std::string> {};

TEST_P(SchedulerProperty, RandomWorkloadsGiveTheTokensOfTheModel) {
  const auto count = static_cast<std::int64_t>(policies().size());
  const std::int64_t wanted =
      number_from_environment("SLUICE_SCHEDULER_STEPS", 20'000 * count) / count;
  const WorkloadReport total = run_campaign(GetParam(), wanted, WorkloadKind::kAny);
  std::printf(
      "%s: %ld steps, %ld sequences, %ld output tokens, %ld preemptions, %ld copies, %ld cached "
      "tokens, %ld cancelled, %ld failed, %ld refused, %ld empty plans, %ld guessed rows, %ld "
      "forced "
      "tokens, %ld rows of micro-batches\n",
      GetParam().c_str(), total.steps, total.finished, total.output_tokens, total.preemptions,
      total.copies, total.cached_tokens, total.cancelled, total.failed, total.refused,
      total.empty_plans, total.guessed_rows, total.forced_tokens, total.piped_rows);
  std::printf(
      "  %ld growths, %ld refused, %ld shrinks, %ld of them idle, %ld moved blocks, %ld transfers, "
      "%ld late, %ld failed; ended for memory %ld, for an adapter %ld\n",
      total.growths, total.refused_growths, total.shrinks, total.idle_releases, total.moved_blocks,
      total.transfers, total.late_transfers, total.failed_transfers, total.no_memory,
      total.no_adapter);
  std::printf("  %ld displaced for a higher priority, %ld times computed instead of loaded\n",
              total.displaced, total.computed_instead);
  std::printf(
      "  %ld blocks saved, %ld loaded, %ld loads failed, %ld tokens found in the tier; %ld "
      "sequences "
      "met their loads, and took over %ld tokens; with two levels %ld changes, %ld fast and %ld "
      "slow loads\n",
      total.saved_blocks, total.loaded_blocks, total.failed_loads, total.tier_tokens, total.met,
      total.met_tokens, total.level_changes, total.fast_loads, total.slow_loads);
  expect_events(GetParam(), total, wanted);
}

// The same with prompts that meet their loads (back_loads.h) all the time.
TEST_P(SchedulerProperty, PromptsMeetTheirLoads) {
  const std::string& policy = GetParam();
  if (!splits_prompts(policy)) GTEST_SKIP();
  const std::int64_t wanted = number_from_environment("SLUICE_MEETING_STEPS", 10'000);
  const WorkloadReport total = run_campaign(policy, wanted, WorkloadKind::kMeeting);
  std::printf(
      "%s: %ld steps, %ld preemptions, %ld cancelled, %ld blocks loaded, %ld loads failed; %ld "
      "sequences met their loads, and took over %ld tokens; with two levels %ld fast and %ld slow "
      "loads\n",
      policy.c_str(), total.steps, total.preemptions, total.cancelled, total.loaded_blocks,
      total.failed_loads, total.met, total.met_tokens, total.fast_loads, total.slow_loads);
  if (wanted < 10'000 || std::getenv("SLUICE_SCHEDULER_SEED") != nullptr) return;
  EXPECT_GT(total.met, wanted / 100);
  EXPECT_GT(total.met_tokens, wanted / 40);
  EXPECT_GT(total.failed_loads, wanted / 200);
  EXPECT_GT(total.fast_loads, wanted / 200);
  EXPECT_GT(total.slow_loads, wanted / 500);
}

// Seeds that found a fault once.
TEST(SchedulerPropertySeeds, StayMended) {
  // An urgent sequence that waited for its adapter kept others out of an idle engine.
  EXPECT_GT(run_scheduler_workload("chunked-only", 9000064, 300).steps, 0);
  // A choice forked from one that had returned in the same plan, whose tail that plan copied.
  EXPECT_GT(run_scheduler_workload("stall-free", 81000403, 300).steps, 0);
  // A pinned block that was saved in the plan that moved it.
  EXPECT_GT(run_scheduler_workload("guessing", 501665, 300).steps, 0);
  // A pinned block was the only page of its tier, so that no other was saved again.
  EXPECT_GT(run_scheduler_workload("hybrid:max-tokens", 1795664461, 300).steps, 0);
  // A plan without rows had taken over loaded blocks, and its table updates were dropped.
  EXPECT_GT(run_scheduler_workload("guessing", 1000016, 300, WorkloadKind::kMeeting).steps, 0);
  // A prompt waited for its loads while a newer sequence took the memory.
  EXPECT_GT(run_scheduler_workload("vtc", 406000008, 300, WorkloadKind::kMeeting).steps, 0);
  // A second chunk that loads from the back made shorter did not fit into the time budget.
  EXPECT_GT(run_scheduler_workload("stall-free", 5000274, 300, WorkloadKind::kMeeting).steps, 0);
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Policies, SchedulerProperty, testing::ValuesIn(policies()), test_name);

}  // namespace
}  // namespace sluice
