#include "front/chat_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kHello = R"([{"role": "user", "content": "Hello"}])";

const ChatTemplates& demo() {
  static const ChatTemplates templates = *ChatTemplates::load("models/demo");
  return templates;
}

// A checkpoint directory with nothing but this template.
ChatTemplates templates_of(const std::string& source) {
  const std::filesystem::path directory =
      std::filesystem::path(::testing::TempDir()) /
      ("chat_prompt_" + std::to_string(getpid()) + "_" +
       std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
  std::filesystem::create_directories(directory);
  std::ofstream(directory / "chat_template.jinja") << source;
  ChatTemplates templates = *ChatTemplates::load(directory.string());
  std::filesystem::remove_all(directory);
  return templates;
}

std::string rendered(const ChatTemplates& templates, const ChatParts& parts) {
  const auto text = render_chat(templates, parts, {});
  return text ? *text : "error: " + text.error().message;
}

TEST(ChatPrompt, DemoTemplate) {
  ChatParts parts{.messages_json = kHello};
  EXPECT_EQ(rendered(demo(), parts), "<|bos|><|user|>Hello<|end|><|assistant|>");
  parts.add_generation_prompt = false;
  EXPECT_EQ(rendered(demo(), parts), "<|bos|><|user|>Hello<|end|>");
}

TEST(ChatPrompt, ErrorsNameTheMessage) {
  EXPECT_THAT(rendered(demo(), {.messages_json = R"([{"role": "user"}, 5])"}),
              HasSubstr("messages[1]: must be an object"));
  EXPECT_THAT(rendered(demo(), {.messages_json = R"([{"role": "judge", "content": ""}])"}),
              HasSubstr("Unknown role: judge"));
}

TEST(ChatPrompt, TextPartsAreJoinedForTemplatesOfOneText) {
  ChatParts parts{.messages_json = R"([{"role": "user", "content": [
      {"type": "text", "text": "one"}, "two", {"type": "text", "text": "three"}]}])",
                  .content_parts = ContentParts::kJoinedText};
  EXPECT_EQ(rendered(demo(), parts), "<|bos|><|user|>one\ntwo\nthree<|end|><|assistant|>");
  parts.messages_json = R"([{"role": "user", "content": []}])";
  EXPECT_EQ(rendered(demo(), parts), "<|bos|><|user|><|end|><|assistant|>");
}

TEST(ChatPrompt, PartsAreLeftToTemplatesThatReadThem) {
  const ChatTemplates templates = templates_of(
      "{% for m in messages %}{% for part in m.content %}[{{ part.text }}]{% endfor %}"
      "{% endfor %}");
  ChatParts parts{.messages_json = R"([{"role": "user", "content": [
      {"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}])",
                  .content_parts = ContentParts::kJoinedText};
  EXPECT_EQ(rendered(templates, parts), "[one][two]");
  parts.messages_json =
      R"([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])";
  EXPECT_THAT(rendered(templates, parts),
              HasSubstr("messages[0].content[0].type: only \"text\" is supported, got "
                        "'image_url'"));
}

TEST(ChatPrompt, OtherPartsAreRefused) {
  const auto error_of = [](std::string_view messages) {
    return rendered(demo(),
                    {.messages_json = messages, .content_parts = ContentParts::kJoinedText});
  };
  EXPECT_THAT(error_of(R"([{"role": "user", "content": [{"type": "input_audio"}]}])"),
              HasSubstr("messages[0].content[0].type: only \"text\" is supported"));
  EXPECT_THAT(error_of(R"([{"role": "user", "content": [{"text": "x"}]}])"), HasSubstr("got none"));
  EXPECT_THAT(error_of(R"([{"role": "user", "content": [{"type": "text", "text": 1}]}])"),
              HasSubstr("messages[0].content[0].text: must be a string"));
  EXPECT_THAT(error_of(R"([{"role": "user", "content": [7]}])"),
              HasSubstr("messages[0].content[0]: must be an object"));
}

TEST(ChatPrompt, ToolArgumentsAreParsedWhenAsked) {
  const ChatTemplates templates = templates_of(
      "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments.city }}"
      "{% endfor %}{% endfor %}");
  ChatParts parts{.messages_json = R"([{"role": "assistant", "content": null, "tool_calls": [
      {"function": {"name": "weather", "arguments": "{\"city\": \"Graz\"}"}}]}])",
                  .tool_arguments = ToolArguments::kParsed};
  EXPECT_EQ(rendered(templates, parts), "Graz");
  parts.tool_arguments = ToolArguments::kAsGiven;
  EXPECT_EQ(rendered(templates, parts), "");
}

// As templates of Qwen 3 do it, and those of DeepSeek's distilled models.
TEST(ChatPrompt, AMessageOfCallsAloneHasTheContentThatTheTemplateLooksFor) {
  const ChatTemplates thinking = templates_of(
      "{% for m in messages %}{{ '</think>' in m.content }} {{ 'said ' + m.content }}"
      "{% endfor %}");
  const ChatTemplates asking = templates_of(
      "{% for m in messages %}{% if m['content'] is none %}calls{% else %}text{% endif %}"
      "{% endfor %}");
  for (const char* messages : {R"([{"role": "assistant", "content": null, "tool_calls": [{}]}])",
                               R"([{"role": "assistant", "tool_calls": [{}]}])"}) {
    const ChatParts parts{.messages_json = messages, .content_parts = ContentParts::kJoinedText};
    EXPECT_EQ(rendered(thinking, parts), "False said ");
    EXPECT_EQ(rendered(asking, parts), "calls");
  }
  const ChatParts text{.messages_json = kHello, .content_parts = ContentParts::kJoinedText};
  EXPECT_EQ(rendered(asking, text), "text");
}

TEST(ChatPrompt, FieldsOfMessagesThatAreNullAreLeftOut) {
  const ChatTemplates templates = templates_of(
      "{% for m in messages %}{{ m | length }}{{ 'content' in m }}{{ m.name is defined }}"
      "{% endfor %}");
  EXPECT_EQ(rendered(templates, {.messages_json = R"([{"role": "user", "content": null,
      "name": null}, {"role": "user", "content": ""}])"}),
            "1FalseFalse2TrueFalse");
}

TEST(ChatPrompt, ToolsAndVariablesReachTheTemplate) {
  const ChatTemplates templates =
      templates_of("{{ tools | length if tools else 'no tools' }} {{ mood }}");
  ChatParts parts{.messages_json = kHello, .extra_json = R"({"mood": "calm"})"};
  EXPECT_EQ(rendered(templates, parts), "no tools calm");
  parts.tools_json = R"([{"type": "function"}])";
  EXPECT_EQ(rendered(templates, parts), "1 calm");
  parts.extra_json = R"({"messages": []})";
  EXPECT_THAT(rendered(templates, parts), HasSubstr("chat_template_kwargs: 'messages'"));
}

// --- continue_final_message ----------------------------------------------------------------------

std::string continued(const ChatTemplates& templates, std::string_view messages) {
  return rendered(templates, {.messages_json = messages,
                              .add_generation_prompt = false,
                              .continue_final_message = true,
                              .content_parts = ContentParts::kJoinedText});
}

TEST(ChatPrompt, FinalMessageIsTheEndOfThePrompt) {
  // Its text occurs again in the template's text after it.
  const std::string messages =
      R"([{"role": "user", "content": "Say end"}, {"role": "assistant", "content": "end"}])";
  EXPECT_EQ(continued(demo(), messages), "<|bos|><|user|>Say end<|end|><|assistant|>end");
}

TEST(ChatPrompt, FinalMessageMayBeEmptyOrParts) {
  EXPECT_EQ(continued(demo(), R"([{"role": "assistant", "content": ""}])"), "<|bos|><|assistant|>");
  EXPECT_EQ(continued(demo(), R"([{"role": "assistant", "content": [
      {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])"),
            "<|bos|><|assistant|>a\nb");
}

TEST(ChatPrompt, SpacesBehindTheFinalMessageAreTheTemplates) {
  const std::string messages = R"([{"role": "assistant", "content": " Once upon "}])";
  EXPECT_EQ(continued(demo(), messages), "<|bos|><|assistant|>Once upon");  // it trims
  const ChatTemplates keeps = templates_of("{{ messages[0].content }}<end>");
  EXPECT_EQ(continued(keeps, messages), " Once upon ");
}

TEST(ChatPrompt, FinalMessageThatIsNotPrintedIsAnError) {
  const ChatTemplates silent = templates_of("{{ messages[0].content }}");
  EXPECT_THAT(continued(silent, R"([{"role": "user", "content": "a"},
                                    {"role": "assistant", "content": "b"}])"),
              HasSubstr("does not print the final message as it is"));
  // transformers refuses this too: the text before the mark was changed.
  const ChatTemplates changed = templates_of("{{ messages[0].content.split('.')[-1] }}");
  EXPECT_THAT(continued(changed, R"([{"role": "assistant", "content": "a.b"}])"),
              HasSubstr("does not print the final message as it is"));
}

TEST(ChatPrompt, FinalMessageNeedsText) {
  EXPECT_THAT(continued(demo(), R"([{"role": "assistant", "content": null}])"),
              HasSubstr("messages[0].content: has no text to continue"));
  EXPECT_THAT(continued(demo(), "[]"), HasSubstr("there is no final message"));
  EXPECT_THAT(rendered(demo(), {.messages_json = kHello, .continue_final_message = true}),
              HasSubstr("exclude each other"));
}

}  // namespace
}  // namespace sluice
