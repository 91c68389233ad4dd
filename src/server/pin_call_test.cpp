#include "server/pin_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"

namespace sluice {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

ApiError pin_error(std::string_view body) {
  const auto call = parse_pin_call(body, UnknownFields::kRefuse);
  if (!call) return call.error();
  ApiError none;
  none.status = 200;
  return none;
}

TEST(PinCall, ReadsAChatOrAPrompt) {
  const auto chat = parse_pin_call(
      R"({"model":"m","messages":[{"role":"system","content":"a"}],"ttl_seconds":90,
          "tools":[{"type":"function","function":{"name":"f"}}],"cache_salt":"s",
          "chat_template_kwargs":{"x":1},"prompt_cache_retention":"in_memory"})",
      UnknownFields::kRefuse);
  ASSERT_TRUE(chat) << chat.error().message;
  EXPECT_EQ(chat->kind, ApiKind::kChat);
  EXPECT_EQ(chat->model, "m");
  EXPECT_FALSE(chat->chat.add_generation_prompt);
  EXPECT_FALSE(chat->chat.tools.is_null());
  EXPECT_FALSE(chat->chat.variables.is_null());
  EXPECT_EQ(chat->cache_salt, "s");
  EXPECT_TRUE(chat->kv_memory_only);
  EXPECT_EQ(chat->pin->ttl, seconds(90));
  EXPECT_EQ(chat->sampling.max_tokens, 1);
  EXPECT_TRUE(chat->prompt_only);
  const auto asked = parse_pin_call(
      R"({"model":"m","messages":[{"role":"user","content":"a"}],"add_generation_prompt":true})",
      UnknownFields::kRefuse);
  ASSERT_TRUE(asked) << asked.error().message;
  EXPECT_TRUE(asked->chat.add_generation_prompt);
  for (const char* prompt : {R"("text")", "[1,2,3]", R"(["text"])"}) {
    const auto text = parse_pin_call(R"({"model":"m","prompt":)" + std::string(prompt) + "}",
                                     UnknownFields::kRefuse);
    ASSERT_TRUE(text) << text.error().message;
    EXPECT_EQ(text->kind, ApiKind::kCompletion);
    EXPECT_EQ(text->prompts.size(), 1U);
    EXPECT_EQ(text->pin->ttl, seconds(kDefaultPinSeconds));
  }
}

TEST(PinCall, WrongBodiesNameTheField) {
  const struct {
    const char* body;
    const char* message;
  } cases[] = {
      {R"({"prompt":"a"})", "model:"},
      {R"({"model":"m"})", "messages:"},
      {R"({"model":"m","prompt":"a","messages":[]})", "prompt: is given together with messages"},
      {R"({"model":"m","prompt":["a","b"]})", "prompt"},
      {R"({"model":"m","prompt":"a","ttl_seconds":0})", "ttl_seconds"},
      {R"({"model":"m","prompt":"a","ttl_seconds":604801})", "ttl_seconds"},
      {R"({"model":"m","prompt":"a","ttl":9})", "ttl"},
      {R"({"model":"m","prompt":"a","tools":[]})", "tools"},
      {R"([])", ""},
  };
  for (const auto& one : cases) {
    const ApiError error = pin_error(one.body);
    EXPECT_EQ(error.status, 400) << one.body;
    EXPECT_THAT(error.message, HasSubstr(one.message)) << one.body;
  }
}

TEST(PinCall, IdsAreShortAndPlain) {
  for (const char* id : {"a", "A-1_b.c", "0"}) EXPECT_TRUE(is_pin_id(id)) << id;
  EXPECT_TRUE(is_pin_id(std::string(64, 'a')));
  EXPECT_FALSE(is_pin_id(std::string(65, 'a')));
  for (const char* id : {"", ".", "-a", "a/b", "a b", "\xC3\xA4", "a\n", "a%"}) {
    EXPECT_FALSE(is_pin_id(id)) << id;
  }
}

TEST(PinCall, AnswersSayWhereTheBlocksAre) {
  PinStatus pin;
  pin.id = "p";
  pin.model = "m\"";
  pin.tokens = 64;
  pin.block_bytes = 1000;
  pin.made = TimePoint{seconds(10)};
  pin.expires = TimePoint{seconds(70)};
  pin.hits = 3;
  const struct {
    PinnedBlocks blocks;
    const char* where;
  } cases[] = {
      {{4, 4, 0}, "memory"},         {{4, 0, 4}, "tier"},           {{4, 1, 3}, "memory_and_tier"},
      {{4, 1, 2}, "partly_missing"}, {{4, 0, 0}, "partly_missing"},
  };
  for (const auto& one : cases) {
    pin.blocks = one.blocks;
    const auto json = parse_json(pin_json(pin, TimePoint{seconds(20)}, 1'000'000));
    EXPECT_EQ(json["where"], one.where);
    EXPECT_EQ(json["id"], "p");
    EXPECT_EQ(json["object"], "kv.prefix");
    EXPECT_EQ(json["model"], "m\"");
    EXPECT_EQ(json["tokens"], 64);
    EXPECT_EQ(json["blocks"], 4);
    EXPECT_EQ(json["bytes"], 4000);
    EXPECT_EQ(json["blocks_in_memory"], one.blocks.in_memory);
    EXPECT_EQ(json["blocks_in_tier"], one.blocks.in_tier);
    EXPECT_EQ(json["created_at"], 999'990);
    EXPECT_EQ(json["expires_at"], 1'000'050);
    EXPECT_EQ(json["hits"], 3);
  }
  const std::vector<PinStatus> two = {pin, pin};
  const auto list = parse_json(pin_list_json(two, {}, 0));
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["data"].size(), 2U);
  EXPECT_EQ(parse_json(pin_list_json({}, {}, 0))["data"].size(), 0U);
  EXPECT_EQ(parse_json(pin_deleted_json("p"))["deleted"], true);
}

}  // namespace
}  // namespace sluice
