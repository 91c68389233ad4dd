#include "function_sim/calls_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using testing::HasSubstr;

const std::vector<std::string> kFunctions = {"a/poet", "b/demo"};
const std::string kHeader = "seconds,function,prompt_tokens,output_tokens\n";

TEST(CallsFile, ReadsEachLine) {
  const auto calls = parse_calls(kHeader + "0,b/demo,10,20\r\n\n1.5,a/poet,1,1", "c", kFunctions);
  ASSERT_TRUE(calls) << calls.error().message;
  ASSERT_EQ(calls->size(), 2U);
  EXPECT_EQ((*calls)[0].function, 1);
  EXPECT_EQ((*calls)[0].prompt_tokens, 10);
  EXPECT_EQ((*calls)[0].output_tokens, 20);
  EXPECT_EQ((*calls)[1].arrival, std::chrono::milliseconds(1500));
  EXPECT_EQ((*calls)[1].function, 0);
}

TEST(CallsFile, ErrorsNameTheLineAndTheField) {
  const auto fault = [](const std::string& lines) {
    const auto calls = parse_calls(kHeader + lines, "c.csv", kFunctions);
    return calls ? std::string("accepted") : calls.error().message;
  };
  EXPECT_THAT(fault(""), HasSubstr("no calls"));
  EXPECT_THAT(fault("0,a/poet,1"), HasSubstr("c.csv:2: has fewer"));
  EXPECT_THAT(fault("0,a/poet,1,1\n-1,a/poet,1,1"), HasSubstr("c.csv:3: seconds"));
  EXPECT_THAT(fault("nan,a/poet,1,1"), HasSubstr("seconds"));
  EXPECT_THAT(fault("1,a/poet,1,1\n0.5,a/poet,1,1"), HasSubstr("c.csv:3: seconds: is before"));
  EXPECT_THAT(fault("1,a/demo,1,1"), HasSubstr("no 'a/demo'"));
  EXPECT_THAT(fault("1,a/poet,0,1"), HasSubstr("prompt_tokens"));
  EXPECT_THAT(fault("1,a/poet,1,9999999999"), HasSubstr("output_tokens"));
  EXPECT_THAT(fault("1,a/poet,1,1,7"), HasSubstr("output_tokens"));
  EXPECT_THAT(parse_calls("time,function\n", "c", kFunctions).error().message,
              HasSubstr("the header must be"));
}

}  // namespace
}  // namespace sluice
