#include "base/json_text.h"

#include <gtest/gtest.h>

#include <string>

#include "base/json_depth.h"

namespace sluice {
namespace {

std::string strict(std::string_view text) {
  std::string storage;
  const auto result = strict_json(text, storage);
  return result ? std::string(*result) : "error: " + result.error().message;
}

TEST(StrictJson, LeavesStrictJsonWhereItIs) {
  for (const std::string_view text :
       {R"({"a": [1, -2, 3.5e-7, true, null, "NaN -Infinity 99999999999999999999 \" [[["]})", "",
        "7", "[18446744073709551615, -9223372036854775808, 9223372036854775808]", "{}",
        "[1e308, 1e-400]", "[0.0000000000000000000001]"}) {
    std::string storage;
    const auto result = strict_json(text, storage);
    ASSERT_TRUE(result);
    EXPECT_EQ(*result, text);
    EXPECT_EQ(result->data(), text.data());
  }
}

TEST(StrictJson, IntegersBeyond64BitsBecomeDoubles) {
  EXPECT_EQ(strict(R"({"model_max_length": 1000000000000000019884624838656, "a": 1})"),
            R"({"model_max_length": 1.00000000000000001e30, "a": 1})");
  EXPECT_EQ(strict("[18446744073709551616]"), "[1.84467440737095516e19]");
  EXPECT_EQ(strict("[-9223372036854775809]"), "[-9.22337203685477580e18]");
  EXPECT_EQ(strict(std::string(308, '9')), "9.99999999999999999e307");
  EXPECT_EQ(strict("[" + std::string(309, '1') + "]"), "[1.7976931348623157e308]");
  EXPECT_EQ(strict("[-1" + std::string(5000, '0') + "]"), "[-1.7976931348623157e308]");
}

TEST(StrictJson, NumbersOfPython) {
  EXPECT_EQ(strict(R"({"a":NaN,"b":[Infinity,-Infinity],"NaN":"Infinity"})"),
            R"({"a":null,"b":[1.7976931348623157e308,-1.7976931348623157e308],"NaN":"Infinity"})");
  EXPECT_EQ(strict("[1e99999999999,1e-99999999999,0e999]"),
            "[1.7976931348623157e308,1e-99999999999,0e999]");
  EXPECT_EQ(strict("[" + std::string(400, '1') + ".5,0.001e312]"),
            "[1.7976931348623157e308,1.7976931348623157e308]");
  EXPECT_EQ(strict("[1e400,-2.5E+999,1e-400]"),
            "[1.7976931348623157e308,-1.7976931348623157e308,1e-400]");
  EXPECT_EQ(strict("[0." + std::string(400, '0') + "1]"), "[0." + std::string(400, '0') + "1]");
}

TEST(StrictJson, LeavesTheByteOrderMarkOut) {
  EXPECT_EQ(strict("\xEF\xBB\xBF{\"a\":1}"), "{\"a\":1}");
  EXPECT_EQ(strict("\xEF\xBB\xBF"), "");
}

TEST(StrictJson, OtherTextPassesThrough) {
  for (const std::string_view text : {"{", "\"open", "\"open\\", "-", "--", "I", "N", "NaM", "-NaM",
                                      "01", "1e", "1.2.3", "nil", "\\"}) {
    EXPECT_EQ(strict(text), text);
  }
}

TEST(StrictJson, NestingIsBounded) {
  const std::string deepest = std::string(kMaxJsonDepth, '[') + std::string(kMaxJsonDepth, ']');
  EXPECT_EQ(strict(deepest), deepest);
  EXPECT_EQ(strict("[" + deepest + "]"), "error: nested deeper than 64 levels");
  EXPECT_EQ(strict(std::string(1 << 20, '{')), "error: nested deeper than 64 levels");
}

}  // namespace
}  // namespace sluice
