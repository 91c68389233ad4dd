#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/generation_call.h"
#include "server/request_json.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ParseTokenizeCall, ReadsATextOrAChat) {
  const auto text = parse_tokenize_call(R"({"prompt":"hi","return_token_strs":true})");
  ASSERT_TRUE(text);
  EXPECT_EQ(text->model, std::nullopt);
  EXPECT_EQ(text->prompt, "hi");
  EXPECT_FALSE(text->chat);
  EXPECT_TRUE(text->add_special_tokens);
  EXPECT_TRUE(text->return_token_strs);

  const auto chat = parse_tokenize_call(
      R"({"model":"m","messages":[{"role":"user","content":"hi"}],"add_generation_prompt":false,
          "tools":[{"type":"function","function":{"name":"f"}}],"chat_template_kwargs":{"a":1}})");
  ASSERT_TRUE(chat);
  EXPECT_EQ(chat->model, "m");
  EXPECT_FALSE(chat->prompt);
  ASSERT_TRUE(chat->chat);
  std::string parts;
  for (const JsonValue* part :
       {&chat->chat->messages, &chat->chat->tools, &chat->chat->variables}) {
    append_json(*part, parts);
    parts += '\n';
  }
  EXPECT_EQ(parts,
            "[{\"role\":\"user\",\"content\":\"hi\"}]\n"
            "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]\n"
            "{\"a\":1}\n");
  EXPECT_FALSE(chat->chat->add_generation_prompt);
  EXPECT_FALSE(chat->add_special_tokens);
}

TEST(ParseTokenizeCall, FaultsNameTheField) {
  const struct {
    const char* body;
    const char* param;
    const char* message;
  } cases[] = {
      {"{}", "prompt", "a string, or messages"},
      {R"({"prompt":["a"]})", "prompt", "expected a string"},
      {R"({"prompt":"a","messages":[]})", "prompt", "together with messages"},
      {R"({"messages":[]})", "messages", "is empty"},
      {R"({"prompt":"a","model":1})", "model", "expected a string"},
      {R"({"prompt":"a","add_special_tokens":1})", "add_special_tokens", "true or false"},
      {R"({"prompt":"a","chat_template":"x"})", "chat_template", "unknown field"},
      {R"({"prompt":"a","return_token_str":true})", "return_token_str",
       "did you mean \"return_token_strs\"?"},
  };
  for (const auto& fault : cases) {
    const auto call = parse_tokenize_call(fault.body);
    ASSERT_FALSE(call) << fault.body;
    EXPECT_EQ(call.error().param, fault.param) << fault.body;
    EXPECT_THAT(call.error().message, HasSubstr(fault.message)) << fault.body;
  }
}

TEST(ParseDetokenizeCall, ReadsTokens) {
  const auto call = parse_detokenize_call(R"({"model":"m","tokens":[3,1,2.0]})");
  ASSERT_TRUE(call);
  EXPECT_EQ(call->model, "m");
  EXPECT_THAT(call->tokens, ElementsAre(3, 1, 2));
  EXPECT_THAT(parse_detokenize_call(R"({"tokens":[]})")->tokens, ElementsAre());
}

TEST(ParseDetokenizeCall, FaultsNameTheField) {
  const struct {
    const char* body;
    const char* param;
  } cases[] = {
      {"{}", "tokens"},
      {R"({"tokens":"a"})", "tokens"},
      {R"({"tokens":[1,-1]})", "tokens[1]"},
      {R"({"tokens":[1.5]})", "tokens[0]"},
      {R"({"tokens":[99999999999]})", "tokens[0]"},
      {R"({"tokens":[1],"prompt":"a"})", "prompt"},
  };
  for (const auto& fault : cases) {
    const auto call = parse_detokenize_call(fault.body);
    ASSERT_FALSE(call) << fault.body;
    EXPECT_EQ(call.error().param, fault.param) << fault.body;
  }
}

}  // namespace
}  // namespace sluice
