#include "server/request_id.h"

#include <gtest/gtest.h>

#include <set>

namespace sluice {
namespace {

TEST(RequestId, MadeOnesAreSaneAndDiffer) {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::string id = make_request_id("req-");
    EXPECT_EQ(id.size(), 28U);
    EXPECT_TRUE(is_sane_request_id(id)) << id;
    EXPECT_TRUE(seen.insert(id).second) << id;
  }
}

TEST(RequestId, RefusesIdsThatCouldBreakALogOrAHeader) {
  EXPECT_TRUE(is_sane_request_id("a"));
  EXPECT_TRUE(is_sane_request_id("4f1c:AB_c.9-0"));
  EXPECT_TRUE(is_sane_request_id(std::string(128, 'x')));
  EXPECT_FALSE(is_sane_request_id(""));
  EXPECT_FALSE(is_sane_request_id(std::string(129, 'x')));
  EXPECT_FALSE(is_sane_request_id("a b"));
  EXPECT_FALSE(is_sane_request_id("a\r\nX: y"));
  EXPECT_FALSE(is_sane_request_id("\xc3\xa9"));
}

}  // namespace
}  // namespace sluice
