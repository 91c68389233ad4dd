#include "placement/server_patterns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace sluice {
namespace {

using testing::HasSubstr;

// "p" and "q" are one class. All 6 GPUs are used, so each server holds 3 models.
Cluster servers_of_three() {
  return {.servers = 2,
          .gpus_per_server = 3,
          .gpu_memory_mb = 80,
          .kinds = {{"p", 1, 1, 30}, {"c", 1, 2, -20}, {"q", 3, 1, 30}}};
}

TEST(ServerPatternsTest, StatesHowOftenEachPatternIsUsed) {
  const auto patterns = ServerPatterns::list(servers_of_three(), {90, 3});
  ASSERT_TRUE(patterns);
  EXPECT_TRUE(patterns->cover_all_kinds());
  EXPECT_TRUE(patterns->reach_producers());
  EXPECT_EQ(patterns->program(),
            "Minimize\n obj: 0 x0\n"
            "Subject To\n"
            " servers: + 1 x0 + 1 x1 = 2\n"
            " models0: + 1 x1 = 1\n"
            " models1: + 3 x0 + 1 x1 = 4\n"
            "General\n x0 x1\nEnd\n");
}

TEST(ServerPatternsTest, LimitsLeaveOutPatterns) {
  // Three producers on one server have 90 MB.
  const auto less = ServerPatterns::list(servers_of_three(), {89, 3});
  ASSERT_TRUE(less);
  EXPECT_FALSE(less->reach_producers());
  // One server with the group holds -10 MB, so the other must hold 90.
  const auto wide = ServerPatterns::list(servers_of_three(), {1000, 1});
  ASSERT_TRUE(wide);
  EXPECT_FALSE(wide->cover_all_kinds());
}

TEST(ServerPatternsTest, ASolutionIsSplitIntoTheKindsOfAClass) {
  const Cluster cluster = servers_of_three();
  const auto patterns = ServerPatterns::list(cluster, {90, 3});
  ASSERT_TRUE(patterns);
  const auto solution = parse_cbc_solution("Optimal - objective value 0\n 0 x0 1 0\n 1 x1 1 0\n");
  ASSERT_TRUE(solution);
  const auto placement = patterns->placement_of(*solution);
  ASSERT_TRUE(placement) << placement.error().message;
  ASSERT_TRUE(*placement);
  EXPECT_TRUE(check_placement(cluster, **placement));
  EXPECT_EQ((*placement)->counts, (std::vector<std::vector<std::int32_t>>{{1, 0, 2}, {0, 1, 1}}));
}

TEST(ServerPatternsTest, RefusesSolutionsOfOtherPrograms) {
  const Cluster cluster = servers_of_three();
  const auto patterns = ServerPatterns::list(cluster, {90, 3});
  ASSERT_TRUE(patterns);
  for (const char* line : {" 0 x2 1 0\n", " 0 x 1 0\n", " 0 n0_0 1 0\n", " 0 x0 3 0\n",
                           " 0 x0 -1 0\n", " 0 x0 2 0\n"}) {
    const auto solution = parse_cbc_solution(std::string("Optimal - objective value 0\n") + line);
    ASSERT_TRUE(solution);
    const auto placement = patterns->placement_of(*solution);
    ASSERT_FALSE(placement) << line;
    EXPECT_THAT(placement.error().message, HasSubstr("CBC"));
  }
}

TEST(ServerPatternsTest, ManyKindsAreTooManyPatterns) {
  Cluster cluster{.servers = 10, .gpus_per_server = 64, .gpu_memory_mb = 80'000, .kinds = {}};
  for (int k = 0; k < 10; ++k) cluster.kinds.push_back({"kind", 64, 1, 1000 * k});
  EXPECT_FALSE(ServerPatterns::list(cluster, {640'000, 64}));
}

}  // namespace
}  // namespace sluice
