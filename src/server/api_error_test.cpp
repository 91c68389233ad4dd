#include "server/api_error.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace sluice {
namespace {

TEST(ApiError, HasOpenAisShape) {
  EXPECT_EQ(to_json(bad_field("messages[2].content", "is missing")),
            R"({"error":{"message":"is missing","type":"invalid_request_error",)"
            R"("param":"messages[2].content","code":null}})");
  EXPECT_EQ(to_json(unsupported_field("best_of", "no")),
            R"({"error":{"message":"no","type":"invalid_request_error","param":"best_of",)"
            R"("code":"unsupported"}})");
  EXPECT_EQ(bad_field("a", "b").status, 400);
  EXPECT_EQ(unsupported_field("a", "b").status, 400);
}

TEST(ApiError, StaysValidJsonWhateverTheMessageHolds) {
  const ApiError error = bad_field("x\n", "quote \" and \xFF and \x01");
  const auto parsed = parse_json(to_json(error));
  EXPECT_EQ(parsed["error"]["message"], "quote \" and \xEF\xBF\xBD and \x01");
  EXPECT_EQ(parsed["error"]["param"], "x\n");
}

TEST(ApiError, EveryErrorCodeHasItsStatusAndType) {
  const struct {
    ErrorCode code;
    int status;
    const char* type;
    const char* name;
  } cases[] = {
      {ErrorCode::kInvalidArgument, 400, "invalid_request_error", ""},
      {ErrorCode::kNotFound, 404, "invalid_request_error", "not_found"},
      {ErrorCode::kResourceExhausted, 429, "rate_limit_exceeded", "resource_exhausted"},
      {ErrorCode::kCancelled, 499, "cancelled", "cancelled"},
      {ErrorCode::kInternal, 500, "server_error", "internal"},
      {ErrorCode::kUnsupported, 501, "invalid_request_error", "unsupported"},
      {ErrorCode::kUnavailable, 503, "server_error", "unavailable"},
      {ErrorCode::kDeadlineExceeded, 504, "server_error", "deadline_exceeded"},
      {ErrorCode::kContextLength, 400, "invalid_request_error", "context_length_exceeded"},
  };
  for (const auto& expected : cases) {
    const ApiError error = to_api_error(Error{expected.code, "why"}, "field");
    EXPECT_EQ(error.status, expected.status);
    EXPECT_EQ(error.type, expected.type);
    EXPECT_EQ(error.code, expected.name);
    EXPECT_EQ(error.message, "why");
    EXPECT_EQ(error.param, "field");
    EXPECT_EQ(error.retry_after_s.has_value(), expected.status == 429);
  }
}

}  // namespace
}  // namespace sluice
