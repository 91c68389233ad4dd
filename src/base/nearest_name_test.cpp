#include "base/nearest_name.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace sluice {
namespace {

TEST(NearestName, IsAtMostTwoEditsAway) {
  constexpr std::array<std::string_view, 4> kKnown = {"--host", "--port", "--max-num-seqs", "-n"};
  EXPECT_EQ(nearest_name("--prot", kKnown), "--port");
  EXPECT_EQ(nearest_name("--max-num-seq", kKnown), "--max-num-seqs");
  EXPECT_EQ(nearest_name("--max-num", kKnown), "");
  EXPECT_EQ(nearest_name("--host", kKnown), "--host");
  EXPECT_EQ(nearest_name("", kKnown), "");
  EXPECT_EQ(nearest_name("x", kKnown), "") << "two edits turn any short name into any other";
  EXPECT_EQ(nearest_name(std::string(1000, '-'), kKnown), "");
  EXPECT_EQ(nearest_name("--port", {}), "");
}

}  // namespace
}  // namespace sluice
