#include "apps/startup_loads.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace sluice {
namespace {

// A machine with room for some backbones of one size.
class StartupLoadsTest : public testing::Test {
 protected:
  Status load(const std::string& name, int room) {
    return loads_.load(
        name,
        [this, name, room]() -> Status {
          ++tries_;
          if (std::ssize(memory_) >= room) return resource_exhausted("no room for " + name);
          memory_.insert(name);
          return {};
        },
        [this, name] { EXPECT_EQ(memory_.erase(name), 1); });
  }

  StartupLoads loads_;
  std::set<std::string> memory_;
  int tries_ = 0;
};

TEST_F(StartupLoadsTest, KeepsAllThatFit) {
  ASSERT_TRUE(load("a", 2));
  ASSERT_TRUE(load("b", 2));
  EXPECT_EQ(tries_, 2);
  EXPECT_TRUE(loads_.is_loaded("a"));
  EXPECT_TRUE(loads_.is_loaded("b"));
  EXPECT_FALSE(loads_.is_loaded("c"));
}

TEST_F(StartupLoadsTest, MakesAllBeforeLeaveForOneWithoutRoom) {
  for (const char* name : {"a", "b", "c", "d"}) ASSERT_TRUE(load(name, 2)) << name;
  // `c` came twice, after `a` and `b` had left; `d` fits beside it.
  EXPECT_EQ(tries_, 5);
  EXPECT_EQ(memory_, (std::set<std::string>{"c", "d"}));
  for (const char* name : {"a", "b"}) EXPECT_FALSE(loads_.is_loaded(name)) << name;
  for (const char* name : {"c", "d"}) EXPECT_TRUE(loads_.is_loaded(name)) << name;
}

TEST_F(StartupLoadsTest, FailsForOneThatDoesNotFitAlone) {
  const Status alone = load("a", 0);
  ASSERT_FALSE(alone);
  EXPECT_EQ(alone.error().message, "no room for a");
  EXPECT_EQ(tries_, 1);
  ASSERT_TRUE(load("b", 1));
  const Status after = load("c", 0);
  ASSERT_FALSE(after);
  EXPECT_EQ(after.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(tries_, 4);
  EXPECT_FALSE(loads_.is_loaded("b"));
  EXPECT_FALSE(loads_.is_loaded("c"));
}

TEST_F(StartupLoadsTest, DoesNotTryAgainAfterOtherErrors) {
  ASSERT_TRUE(load("a", 1));
  int tries = 0;
  const Status status = loads_.load(
      "b",
      [&tries]() -> Status {
        ++tries;
        return invalid_argument("no checkpoint");
      },
      [] { FAIL(); });
  ASSERT_FALSE(status);
  EXPECT_EQ(tries, 1);
  EXPECT_TRUE(loads_.is_loaded("a"));
}

}  // namespace
}  // namespace sluice
