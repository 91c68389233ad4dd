#include "chat_template/json_value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

#include "chat_template/heap.h"
#include "chat_template/json_text.h"

namespace sluice::jinja {
namespace {

std::string dump(Heap& heap, Value value) {
  const auto text = dump_json(heap, value, {});
  return text ? std::string(text->text()) : text.error().message;
}

// Every kind of value, a repeated key, and numbers at and beyond the limits of 64 bits.
JsonValue odd_tree() {
  using Array = JsonValue::Array;
  using Object = JsonValue::Object;
  JsonValue list{Array{{true}, {nullptr}, {JsonDecimal{"-1.50e2"}}, {Array{}}, {Object{}}}};
  return {Object{{"z", {JsonDecimal{"-123456789012345678901234567890"}}},
                 {"a", {std::numeric_limits<std::int64_t>::min()}},
                 {"z", {JsonDecimal{"18446744073709551615"}}},
                 {"text", {std::string("\u00e9\"\n")}},
                 {"", {std::move(list)}}}};
}
constexpr std::string_view kOddText =
    R"({"z": -123456789012345678901234567890, "a": -9223372036854775808,
        "z": 18446744073709551615, "text": "\u00e9\"\n", "": [true, null, -1.50e2, [], {}]})";

TEST(JsonValueTest, ATreeGivesTheValuesOfItsText) {
  Heap heap(1 << 20, 1 << 20);
  const JsonValue tree = odd_tree();
  const auto from = from_tree(tree, heap, "tree");
  const auto parsed = parse_json(kOddText, heap, "text");
  ASSERT_TRUE(from);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(dump(heap, *from), dump(heap, *parsed));
  EXPECT_EQ(dump(heap, *from),
            "{\"z\": 18446744073709551615, \"a\": -9223372036854775808, \"text\": "
            "\"\u00e9\\\"\\n\", \"\": [true, null, -150.0, [], {}]}");
}

TEST(JsonValueTest, ATreeBeyondTheHeapsLimitsIsRefused) {
  const JsonValue tree{JsonValue::Array(1000, JsonValue{true})};
  Heap few_steps(1 << 20, 100);
  const auto steps = from_tree(tree, few_steps, "messages");
  ASSERT_FALSE(steps);
  EXPECT_EQ(steps.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(steps.error().message, "messages: it passes the limit of steps");
  Heap few_bytes(1000, 1 << 20);
  EXPECT_FALSE(from_tree(tree, few_bytes, "messages"));
}

TEST(JsonValueTest, AStopEndsTheConversionOfATree) {
  const StopCheck stop = []() -> Status { return Error{ErrorCode::kCancelled, "left"}; };
  Heap heap(1 << 30, std::uint64_t{1} << 40, &stop);
  const JsonValue tree{JsonValue::Array(200'000, JsonValue{true})};
  const auto value = from_tree(tree, heap, "messages");
  ASSERT_FALSE(value);
  EXPECT_EQ(value.error().message, "left");
}

}  // namespace
}  // namespace sluice::jinja
