// Random lives of scheduler and KV bookkeeping against an oracle; what is checked is written in
// tests/support/scheduler_workload.h. SLUICE_SCHEDULER_STEPS=N runs a campaign of N steps from
// seed SLUICE_SCHEDULER_SEED on (default 1).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tests/support/scheduler_workload.h"

namespace sluice {
namespace {

std::int64_t number_from_environment(const char* name, std::int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

TEST(SchedulerProperty, RandomWorkloadsGiveTheTokensOfTheModel) {
  const std::int64_t wanted = number_from_environment("SLUICE_SCHEDULER_STEPS", 30'000);
  auto seed = static_cast<std::uint64_t>(number_from_environment("SLUICE_SCHEDULER_SEED", 1));
  WorkloadReport total;
  while (total.steps < wanted) {
    const std::int64_t steps = std::min<std::int64_t>(300, wanted - total.steps);
    // A violation aborts; with SLUICE_SCHEDULER_TRACE the last line names the seed.
    if (std::getenv("SLUICE_SCHEDULER_TRACE") != nullptr) std::fprintf(stderr, "seed %lu\n", seed);
    SCOPED_TRACE(seed);
    total += run_scheduler_workload(seed++, steps);
  }
  std::printf(
      "%ld steps, %ld sequences, %ld output tokens, %ld preemptions, %ld copies, %ld cached "
      "tokens, "
      "%ld cancelled, %ld failed, %ld refused, %ld empty plans, %ld guessed rows\n",
      total.steps, total.finished, total.output_tokens, total.preemptions, total.copies,
      total.cached_tokens, total.cancelled, total.failed, total.refused, total.empty_plans,
      total.guessed_rows);
  // The workloads must reach what they are for.
  EXPECT_GT(total.preemptions, wanted / 1000);
  EXPECT_GT(total.copies, wanted / 1000);
  EXPECT_GT(total.cached_tokens, wanted / 100);
  EXPECT_GT(total.cancelled, wanted / 1000);
  EXPECT_GT(total.failed, 0);
  EXPECT_GT(total.guessed_rows, wanted / 1000);
}

}  // namespace
}  // namespace sluice
