#include "base/result.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

Result<int> half(int x) {
  if (x % 2 != 0) return invalid_argument("odd");
  return x / 2;
}

Result<int> quarter(int x) {
  ASSIGN_OR_RETURN(const int h, half(x));
  return half(h);
}

Status check_even(int x) {
  RETURN_IF_ERROR(half(x));
  return {};
}

TEST(Result, CarriesValueOrError) {
  EXPECT_EQ(*quarter(8), 2);
  ASSERT_FALSE(quarter(6));
  EXPECT_EQ(quarter(6).error().message, "odd");
  EXPECT_TRUE(check_even(2));
  EXPECT_FALSE(check_even(3));
}

TEST(Result, CodesMapToHttp) {
  EXPECT_EQ(http_status(ErrorCode::kInvalidArgument), 400);
  EXPECT_EQ(http_status(ErrorCode::kCancelled), 499);
  EXPECT_EQ(error_code_name(ErrorCode::kUnavailable), "unavailable");
}

TEST(Result, ContextGoesInFront) {
  EXPECT_EQ(with_context("config.json", invalid_argument("no")).message, "config.json: no");
}

}  // namespace
}  // namespace sluice
