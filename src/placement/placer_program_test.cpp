#include "placement/placer_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using testing::HasSubstr;

Cluster two_servers() {
  return {.servers = 2,
          .gpus_per_server = 2,
          .gpu_memory_mb = 80,
          .kinds = {{"p", 2, 1, 30}, {"c", 1, 2, -20}}};
}

TEST(PlacerProgramTest, StatesTheEquations) {
  // R is a multiple of gcd(30, 2 * 20) = 10. Its mean is (60 - 40) / 2 = 10; that of N is 0.
  EXPECT_EQ(placer_program(two_servers()),
            "Minimize\n obj: + 10 zr + 80 zn\n"
            "Subject To\n"
            " all0: + 1 n0_0 + 1 n0_1 = 2\n"
            " all1: + 1 n1_0 + 1 n1_1 = 1\n"
            " room0: + 1 n0_0 + 2 n1_0 <= 2\n"
            " spare0: + 3 n0_0 - 4 n1_0 - 1 zr <= 0\n"
            " producers0: + 1 n0_0 - 2 n1_0 - 1 zn <= 0\n"
            " room1: + 1 n0_1 + 2 n1_1 <= 2\n"
            " spare1: + 3 n0_1 - 4 n1_1 - 1 zr <= 0\n"
            " producers1: + 1 n0_1 - 2 n1_1 - 1 zn <= 0\n"
            "Bounds\n 1 <= zr <= 1e9\n 0 <= zn <= 1e9\n"
            "General\n zr zn\n n0_0 n0_1\n n1_0 n1_1\nEnd\n");
}

TEST(PlacerProgramTest, ReadsASolution) {
  const auto solution = parse_cbc_solution(
      "Optimal - objective value 220.00000000\n"
      "      0 zr      6    10\n"
      "      1 zn      2    80\n"
      "      2 n0_0    1.9999999  0\n"
      "      5 n1_1    1    0\n");
  ASSERT_TRUE(solution) << solution.error().message;
  EXPECT_TRUE(solution->optimal);
  const auto placement = placement_of(two_servers(), *solution);
  ASSERT_TRUE(placement) << placement.error().message;
  ASSERT_TRUE(*placement);
  EXPECT_EQ((*placement)->counts, (std::vector<std::vector<std::int32_t>>{{2, 0}, {0, 1}}));
  EXPECT_EQ(objective_mb(two_servers(), **placement), 60 + 2 * 80);
}

TEST(PlacerProgramTest, AnInfeasibleProgramIsAnAnswer) {
  const auto solution = parse_cbc_solution("Infeasible - objective value 0\n 0 n0_0 9 0\n");
  ASSERT_TRUE(solution);
  EXPECT_TRUE(solution->infeasible);
  const auto placement = placement_of(two_servers(), *solution);
  ASSERT_TRUE(placement);
  EXPECT_FALSE(*placement);
}

// Stopped before it found anything: the placement is incomplete, or breaks a row.
TEST(PlacerProgramTest, AnIncompleteSolutionIsNone) {
  for (const char* text : {"Stopped on time - objective value 1e+50\n 2 n0_0 1 0\n",
                           "Stopped on time - objective value 1e+50\n** 2 n0_0 2 0\n"}) {
    const auto solution = parse_cbc_solution(text);
    ASSERT_TRUE(solution);
    const auto placement = placement_of(two_servers(), *solution);
    ASSERT_TRUE(placement);
    EXPECT_FALSE(*placement);
  }
}

TEST(PlacerProgramTest, RefusesOtherTexts) {
  const std::string head = "Optimal - objective value 1\n";
  for (const std::string& text :
       {std::string(), std::string("hello\n"), head + " 1 n0_0\n", head + " 1 n9_0 1 0\n",
        head + " 1 n0_9 1 0\n", head + " 1 x 1 0\n", head + " 1 n0_0 nan 0\n",
        head + " 1 n0_0 1e99 0\n", head + " 1 n0_0 -7 0\n", head + " 1 n0_0 1 0\n"}) {
    const auto solution = parse_cbc_solution(text);
    const std::string error = solution ? placement_of(two_servers(), *solution).error().message
                                       : solution.error().message;
    EXPECT_THAT(error, HasSubstr("CBC")) << text;
  }
}

TEST(PlacerProgramTest, ReadsTheBound) {
  EXPECT_EQ(parse_lower_bound("Objective value: 40.0\nLower bound:     34.999\nGap: 0.1\n"),
            34.999);
  EXPECT_FALSE(parse_lower_bound("Objective value: 40.0\n"));
  EXPECT_FALSE(parse_lower_bound("x\nLower bound:   soon\n"));
}

}  // namespace
}  // namespace sluice
