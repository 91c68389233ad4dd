#include "front/warm_chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;

const ServedModel& warm_demo() {
  static const ServedModel model = [] {
    EngineFacts facts;
    facts.limits = {.vocab_size = 3072, .max_model_len = 256, .num_adapters = 0};
    facts.kv_identity.model_digest = "demo";
    facts.kv_identity.block_size = 4;
    facts.block_size = 4;
    return *load_served_model("models/demo", "demo", 1, facts);
  }();
  return model;
}

constexpr std::string_view kSystem =
    R"([{"role":"system","content":"You are a helpful cat. Answer with few words and be kind."}])";

std::string why_not(std::string_view json) {
  const auto chat = parse_warm_chat(json, "w.json");
  return chat ? "" : chat.error().message;
}

TEST(WarmChat, ReadsBothForms) {
  const auto array = parse_warm_chat(kSystem, "w.json");
  ASSERT_TRUE(array) << array.error().message;
  const auto object =
      parse_warm_chat(R"({"messages":)" + std::string(kSystem) + R"(, "tools": null})", "v.json");
  ASSERT_TRUE(object) << object.error().message;
  EXPECT_TRUE(*array == *object);
  const auto tools = parse_warm_chat(R"({"tools":[{"type":"function"}]})", "w.json");
  ASSERT_TRUE(tools);
  EXPECT_EQ(tools->messages, "[]");
  EXPECT_EQ(tools->tools, R"([{"type":"function"}])");
}

TEST(WarmChat, NamesWhatIsWrong) {
  EXPECT_THAT(why_not("{"), HasSubstr("w.json: is not valid JSON"));
  EXPECT_THAT(why_not("3"), HasSubstr("must be an array of messages"));
  EXPECT_THAT(why_not("[3]"), HasSubstr("messages must be an array of objects"));
  EXPECT_THAT(why_not(R"({"messages":{}})"), HasSubstr("messages must be an array of objects"));
  EXPECT_THAT(why_not(R"({"messages":[],"tools":"x"})"), HasSubstr("tools must be an array"));
  EXPECT_THAT(why_not(R"({"message":[]})"), HasSubstr("a field 'message'"));
  EXPECT_THAT(why_not("[]"), HasSubstr("neither messages nor tools"));
  EXPECT_THAT(why_not(std::string(1000, '[')), HasSubstr("nested deeper"));
}

// The tokens are the beginning of what every user turn behind the chat is rendered to.
TEST(WarmChat, TokensAreThoseThatUserTurnsShare) {
  const auto chat = parse_warm_chat(kSystem, "w.json");
  ASSERT_TRUE(chat);
  PromptWorker worker(warm_demo());
  const auto tokens = warm_tokens(*chat, worker);
  ASSERT_TRUE(tokens) << tokens.error().message;
  ASSERT_GE(tokens->size(), 8U);
  EXPECT_EQ(tokens->size() % 4, 0U);
  for (const char* turn : {"What is a queue?", "\\n\\nx", "42"}) {
    std::string messages(kSystem);
    messages.pop_back();
    messages += R"(,{"role":"user","content":")" + std::string(turn) + R"("}])";
    const auto prompt = worker.from_chat({.messages_json = messages}, AddSpecialTokens::kNo, "");
    ASSERT_TRUE(prompt) << prompt.error().error.message;
    ASSERT_GT(prompt->ids.size(), tokens->size());
    EXPECT_TRUE(std::equal(tokens->begin(), tokens->end(), prompt->ids.begin())) << turn;
  }
}

TEST(WarmChat, AChatThatFillsTheContextIsRefused) {
  std::string words;
  for (int i = 0; i < 400; ++i) words += "cat dog ";
  const auto chat = parse_warm_chat(R"([{"role":"system","content":")" + words + R"("}])", "w");
  ASSERT_TRUE(chat);
  PromptWorker worker(warm_demo());
  const auto tokens = warm_tokens(*chat, worker);
  ASSERT_FALSE(tokens);
  EXPECT_THAT(tokens.error().message, HasSubstr("--max-model-len"));
}

}  // namespace
}  // namespace sluice
