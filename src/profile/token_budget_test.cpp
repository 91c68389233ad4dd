#include "profile/token_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "profile/test_profiles.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

MachineProfile exact() {
  MachineProfile profile = test::test_profile(0);
  EXPECT_TRUE(fit_profile(profile));
  profile.error.p90_too_short = 0;
  return profile;
}

double full_step_ns(const MachineProfile& profile, const ReferenceLoad& load, std::int32_t tokens) {
  return profile.predictor.time_ns(
      StepShape{load.decode_rows, load.context, tokens - load.decode_rows, load.context}
          .features());
}

TEST(TokenBudgetTest, TheReferenceLoadIsThePapersAsFarAsTheEngineGoes) {
  EXPECT_EQ(reference_load(128, 8192).decode_rows, 32);
  EXPECT_EQ(reference_load(128, 8192).context, 4096);
  EXPECT_EQ(reference_load(8, 1000).decode_rows, 7);
  EXPECT_EQ(reference_load(8, 1000).context, 999);
  EXPECT_EQ(reference_load(1, 100).decode_rows, 1);
}

TEST(TokenBudgetTest, GoalsAreFiveAndTwentyFiveDecodeSteps) {
  MachineProfile profile = exact();
  const PaperGoals goals = paper_goals(profile);
  const double truth = test::test_law().time_ns(StepShape{32, 4096, 0, 0}.features());
  EXPECT_NEAR(static_cast<double>(goals.decode_step.count()), truth, 0.02 * truth);
  EXPECT_NEAR(static_cast<double>(goals.strict.count()), 5 * truth, 0.1 * truth);
  EXPECT_NEAR(static_cast<double>(goals.relaxed.count()), 25 * truth, 0.5 * truth);
  EXPECT_FALSE(goals.extrapolated);
  profile.max_model_len = 2048;
  EXPECT_TRUE(paper_goals(profile).extrapolated);
  profile = exact();
  profile.max_num_seqs = 16;
  EXPECT_TRUE(paper_goals(profile).extrapolated);
}

TEST(TokenBudgetTest, TheBudgetIsTheLargestOfWholeTilesThatKeepsTheGoal) {
  const MachineProfile profile = exact();
  const ReferenceLoad load{8, 1000};
  std::int32_t before = 0;
  for (int ms = 40; ms < 200; ms += 7) {
    const auto budget = choose_token_budget(profile, load, milliseconds(ms));
    ASSERT_TRUE(budget) << ms;
    EXPECT_EQ(*budget % 16, 0);
    EXPECT_GE(*budget, before);
    EXPECT_LE(full_step_ns(profile, load, *budget), ms * 1e6);
    if (*budget + 16 <= profile.max_tokens) {
      EXPECT_GT(full_step_ns(profile, load, *budget + 16), ms * 1e6);
    }
    before = *budget;
  }
  EXPECT_GT(before, 256);
}

TEST(TokenBudgetTest, AnImpossibleGoalIsRefusedWithTheLeastThatWorks) {
  const MachineProfile profile = exact();
  const ReferenceLoad load{32, 4096};
  const auto budget = choose_token_budget(profile, load, milliseconds(20));
  ASSERT_FALSE(budget);
  EXPECT_EQ(budget.error().code, ErrorCode::kInvalidArgument);
  const std::string& message = budget.error().message;
  EXPECT_THAT(message, HasSubstr("--tbt-slo-ms 20"));
  const std::string before = "can be kept is ";
  const double least = std::atof(message.c_str() + message.find(before) + before.size());
  ASSERT_GT(least, 20) << message;
  // Just that is possible, and a little less is not.
  const auto goal = [](double ms) { return Duration(static_cast<Duration::rep>(ms * 1e6)); };
  const auto tight = choose_token_budget(profile, load, goal(least));
  ASSERT_TRUE(tight) << tight.error().message;
  EXPECT_GE(*tight, load.decode_rows + 1);
  EXPECT_FALSE(choose_token_budget(profile, load, goal(least - 5)));
  EXPECT_FALSE(choose_time_budget(profile, load, goal(least - 5)));
  EXPECT_TRUE(choose_time_budget(profile, load, goal(least)));
}

TEST(TokenBudgetTest, ShorterContextsKeepAGoalThatIsTooShortForLongOnes) {
  const MachineProfile profile = exact();
  const ReferenceLoad load{8, 100'000};
  const Duration goal = milliseconds(60);
  ASSERT_FALSE(choose_token_budget(profile, load, goal));
  const PartOfGoal part = keep_part(profile, load, goal);
  ASSERT_TRUE(part.context);
  EXPECT_LT(*part.context, load.context);
  EXPECT_LE(full_step_ns(profile, {8, *part.context}, part.token_budget), 60e6);
  EXPECT_FALSE(choose_token_budget(profile, {8, 2 * *part.context + 1}, goal));
  EXPECT_EQ(time_budget_for(profile, load, goal).time.tbt, goal);
}

TEST(TokenBudgetTest, AGoalThatNoStepMeetsLeavesTheSmallestSteps) {
  const MachineProfile profile = exact();
  const ReferenceLoad load{32, 4096};
  const PartOfGoal part = keep_part(profile, load, milliseconds(1));
  EXPECT_FALSE(part.context);
  EXPECT_EQ(part.token_budget, 32 + least_chunk(profile));
  const TimeBudgetChoice choice = time_budget_for(profile, load, milliseconds(1));
  EXPECT_EQ(choice.token_budget, 32 + least_chunk(profile));
  EXPECT_EQ(choice.time.min_chunk, least_chunk(profile));
}

TEST(TokenBudgetTest, TheMarginIsWhatPredictionsWereTooShort) {
  MachineProfile profile = exact();
  const ReferenceLoad load{8, 1000};
  const std::int32_t bold = *choose_token_budget(profile, load, milliseconds(100));
  profile.error.p90_too_short = 0.25;
  EXPECT_DOUBLE_EQ(prediction_margin(profile), 1.25);
  EXPECT_EQ(*choose_token_budget(profile, load, milliseconds(125)), bold);
  profile.error.p90_too_short = 7;
  EXPECT_DOUBLE_EQ(prediction_margin(profile), 1.5);
}

TEST(TokenBudgetTest, ATimeBudgetHasRoomForChunksThatCostLittle) {
  const MachineProfile profile = exact();
  const ReferenceLoad load{16, 4000};
  const auto choice = choose_time_budget(profile, load, milliseconds(120));
  ASSERT_TRUE(choice);
  EXPECT_GT(choice->token_budget, *choose_token_budget(profile, load, milliseconds(120)));
  EXPECT_LE(choice->token_budget, profile.max_tokens);
  EXPECT_EQ(choice->token_budget % 16, 0);
  EXPECT_EQ(choice->time.tbt, milliseconds(120));
  EXPECT_EQ(choice->time.longest_step, milliseconds(120));
  EXPECT_EQ(choice->time.shortest_step, milliseconds(30));
  EXPECT_EQ(choice->time.min_chunk, 16);
}

}  // namespace
}  // namespace sluice
