#include "apps/profile_plots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "profile/test_profiles.h"

namespace sluice {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::Gt;
using testing::SizeIs;

class ProfilePlots : public testing::Test {
 protected:
  void SetUp() override {
    profile_ = test::test_profile(0);
    profile_.predictor = test::test_law();
  }

  // The rows of a file of a plot.
  std::vector<std::vector<double>> rows(const std::string& plot, const std::string& file) const {
    std::vector<std::vector<double>> found;
    for (const Plot& made : profile_plots(profile_, 256)) {
      if (made.name != plot) continue;
      for (const auto& [name, text] : made.data) {
        if (name != file) continue;
        std::istringstream lines(text);
        for (std::string line; std::getline(lines, line);) {
          std::istringstream fields(line);
          std::vector<double>& row = found.emplace_back();
          for (double value = 0; fields >> value;) row.push_back(value);
        }
      }
    }
    return found;
  }

  MachineProfile profile_;
};

TEST_F(ProfilePlots, AreThoseOfThePaper) {
  std::vector<std::string> names;
  for (const Plot& plot : profile_plots(profile_, 256)) names.push_back(plot.name);
  EXPECT_THAT(names, ElementsAre("throughput", "split_prompt", "split_decode", "linear", "chunks",
                                 "joining"));
}

// The law has 10 ms for a step, 2 ms for its tile of 16, 0.02 ms for its row, and 2/32 ms for a
// token.
TEST_F(ProfilePlots, AStepWithoutAttentionIsFlatAndThenRises) {
  const auto line = rows("linear", "linear.dat");
  ASSERT_THAT(line, SizeIs(Gt(10U)));
  EXPECT_THAT(line.front(), ElementsAre(1, DoubleNear(12.0825, 1e-4)));
  EXPECT_LT(line[15][1], 1.1 * line[0][1]);  // 16 tokens
  EXPECT_GT(line.back()[1], 10 * line[0][1]);
  // A point lies on the line: its attention is taken off.
  for (const auto& point : rows("linear", "linear_points.dat")) {
    const auto near = std::ranges::find(line, point[0], [](const auto& row) { return row[0]; });
    if (near == line.end()) continue;
    EXPECT_NEAR(point[1], (*near)[1], 1e-6 * point[1]);
  }
}

TEST_F(ProfilePlots, ShorterChunksCostMore) {
  const auto table = rows("chunks", "chunks.dat");
  ASSERT_THAT(table, SizeIs(6U));  // of 16 to 512 tokens
  for (std::size_t column = 1; column <= 3; ++column) {
    for (std::size_t i = 0; i + 1 < table.size(); ++i) {
      EXPECT_GT(table[i][column], table[i + 1][column]) << column;
    }
  }
  EXPECT_DOUBLE_EQ(table.back()[1], 1.0);  // a prompt of 512 in one chunk
}

}  // namespace
}  // namespace sluice
