#include "chat_template/template_loader.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace sluice {
namespace {

namespace fs = std::filesystem;

class TemplateLoader : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "sluice_templates_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { fs::remove_all(directory_); }

  void write(const std::string& name, const std::string& text) {
    fs::create_directories((fs::path(directory_) / name).parent_path());
    std::ofstream(fs::path(directory_) / name) << text;
  }

  std::string render(ToolsGiven tools = ToolsGiven::kNo) {
    const auto loaded = ChatTemplates::load(directory_);
    if (!loaded) return loaded.error().message;
    const auto chosen = loaded->choose(tools);
    if (!chosen) return chosen.error().message;
    ChatInput input;
    input.messages_json = R"([{"role": "user", "content": "hi"}])";
    input.special_tokens = loaded->special_tokens();
    const auto context = ChatContext::from_chat(input);
    if (!context) return context.error().message;
    const auto text = (*chosen)->render(*context);
    return text ? *text : text.error().message;
  }

  std::string directory_;
};

TEST_F(TemplateLoader, TextInTokenizerConfig) {
  write("tokenizer_config.json",
        R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": null,
            "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"})");
  EXPECT_EQ(render(), "<s>hi</s>");
}

TEST_F(TemplateLoader, TheFileWinsOverTheConfig) {
  write("tokenizer_config.json", R"({"bos_token": "<s>", "chat_template": "config"})");
  write("chat_template.jinja", "file {{ bos_token }}\n");
  EXPECT_EQ(render(), "file <s>");
}

TEST_F(TemplateLoader, ListChoosesByTools) {
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "plain"},
                              {"name": "tool_use", "template": "tools"}]})");
  EXPECT_EQ(render(), "plain");
  EXPECT_EQ(render(ToolsGiven::kYes), "tools");
}

TEST_F(TemplateLoader, FolderOfTemplates) {
  write("chat_template.jinja", "plain");
  write("chat_templates/tool_use.jinja", "tools");
  write("chat_templates/broken.jinja", "{% if %}");
  EXPECT_EQ(render(), "plain");
  EXPECT_EQ(render(ToolsGiven::kYes), "tools");
  const auto loaded = ChatTemplates::load(directory_);
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->names(), (std::vector<std::string>{"default", "broken", "tool_use"}));
  EXPECT_NE(loaded->by_name("broken").error().message.find("broken.jinja, line 1"),
            std::string::npos);
  EXPECT_EQ(loaded->by_name("other").error().code, ErrorCode::kNotFound);
}

TEST_F(TemplateLoader, ListWithoutDefault) {
  write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "x"}]})");
  EXPECT_NE(render().find("there is no chat template \"default\"; there are: rag"),
            std::string::npos);
}

TEST_F(TemplateLoader, NoTemplateSaysWhatToDo) {
  write("tokenizer_config.json", R"({"bos_token": "<s>"})");
  const auto loaded = ChatTemplates::load(directory_);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::kNotFound);
  EXPECT_NE(loaded.error().message.find("Add a chat_template.jinja"), std::string::npos);
}

TEST_F(TemplateLoader, SpecialTokensFromTheMap) {
  write("tokenizer_config.json", R"({"bos_token": "<a>"})");
  write("special_tokens_map.json", R"({"bos_token": "<b>", "eos_token": {"content": "</b>"}})");
  write("chat_template.jinja", "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}");
  EXPECT_EQ(render(), "<a></b>False");
}

TEST_F(TemplateLoader, SourcesSurviveAsBytes) {
  write("tokenizer_config.json",
        R"({"bos_token": "<s>", "chat_template": [{"name": "default", "template": "plain"},
                                                  {"name": "tool_use", "template": "{% if %}"}]})");
  const auto read = read_chat_template_sources(directory_);
  ASSERT_TRUE(read);
  const auto bytes = write_chat_template_sources(*read);
  const auto opened = open_chat_template_sources(bytes);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(write_chat_template_sources(*opened), bytes);
  EXPECT_EQ(opened->special_tokens, read->special_tokens);
  const auto loaded = ChatTemplates::from_sources(*opened);
  ASSERT_TRUE(loaded);
  EXPECT_TRUE(loaded->choose(ToolsGiven::kNo));
  EXPECT_NE(loaded->choose(ToolsGiven::kYes)
                .error()
                .message.find("tokenizer_config.json (chat_template \"tool_use\"), line 1"),
            std::string::npos);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(open_chat_template_sources(std::span(bytes).first(size))) << size;
  }
  auto longer = bytes;
  longer.push_back({});
  EXPECT_FALSE(open_chat_template_sources(longer));
}

TEST_F(TemplateLoader, BytesOfCheckpointsWithoutTemplatesSaySo) {
  const auto bytes = write_chat_template_sources({});
  const auto opened = open_chat_template_sources(bytes);
  ASSERT_TRUE(opened);
  EXPECT_EQ(ChatTemplates::from_sources(*opened).error().code, ErrorCode::kNotFound);
}

TEST_F(TemplateLoader, BadConfigNamesTheFile) {
  write("tokenizer_config.json", "{");
  EXPECT_NE(render().find("tokenizer_config.json: not valid JSON"), std::string::npos);
  write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_NE(render().find("must be a text or a list"), std::string::npos);
  write("tokenizer_config.json", R"({"chat_template": [5]})");
  EXPECT_NE(render().find("each item must be"), std::string::npos);
}

// --- ChatContext::from_chat

std::string render_chat(std::string_view source, const ChatInput& input) {
  const auto parsed = ChatTemplate::parse(source, "t");
  if (!parsed) return parsed.error().message;
  const auto context = ChatContext::from_chat(input);
  if (!context) return context.error().message;
  const auto text = parsed->render(*context);
  return text ? *text : text.error().message;
}

TEST(ChatInputTest, VariablesAsTransformersGivesThem) {
  ChatInput input;
  input.messages_json = "[]";
  EXPECT_EQ(render_chat("{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}"
                        "{{ messages }}{{ bos_token is defined }}",
                        input),
            "TrueTrueTrue[]False");
  input.tools_json = R"([{"type": "function"}])";
  input.extra_json = R"({"enable_thinking": false, "bos_token": "<x>"})";
  input.special_tokens = {{"bos_token", "<s>"}};
  input.add_generation_prompt = false;
  EXPECT_EQ(render_chat("{{ tools }}{{ enable_thinking }}{{ bos_token }}"
                        "{{ add_generation_prompt }}",
                        input),
            "[{'type': 'function'}]False<x>False");
}

TEST(ChatInputTest, ReasoningHasAllItsNames) {
  ChatInput input;
  input.messages_json = R"([{"role": "assistant", "reasoning": "r"}])";
  EXPECT_EQ(render_chat("{{ messages[0] }}", input),
            "{'thinking': 'r', 'role': 'assistant', 'reasoning': 'r', 'reasoning_content': 'r'}");
}

TEST(ChatInputTest, ToolArgumentsCanBeParsed) {
  ChatInput input;
  input.messages_json =
      R"([{"role": "assistant", "tool_calls": [{"id": "1", "function":
          {"name": "f", "arguments": "{\"a\": [1, 2.5]}"}}]}])";
  constexpr std::string_view kSource = "{{ messages[0].tool_calls[0].function }}";
  EXPECT_EQ(render_chat(kSource, input), R"({'name': 'f', 'arguments': '{"a": [1, 2.5]}'})");
  input.tool_arguments = ToolArguments::kParsed;
  EXPECT_EQ(render_chat(kSource, input), "{'name': 'f', 'arguments': {'a': [1, 2.5]}}");
  input.messages_json = R"([{"tool_calls": [{"function": {"name": "f", "arguments": "{oops"}}]}])";
  EXPECT_NE(render_chat(kSource, input).find("messages[0].tool_calls: arguments: not valid JSON"),
            std::string::npos);
}

TEST(ChatInputTest, ErrorsNameTheField) {
  ChatInput input;
  input.messages_json = "{}";
  EXPECT_EQ(render_chat("", input), "messages: must be an array of objects");
  input.messages_json = R"([{"role": "user"}, 5])";
  EXPECT_EQ(render_chat("", input), "messages[1]: must be an object");
  input.messages_json = "[]";
  input.tools_json = "5";
  EXPECT_EQ(render_chat("", input), "tools: must be an array of objects");
  input.tools_json = "";
  input.extra_json = "[]";
  EXPECT_EQ(render_chat("", input), "chat_template_kwargs: must be an object");
  input.extra_json = "";
  input.messages_json = std::string_view("[{\"a\": \"\xff\"}]");
  EXPECT_NE(render_chat("", input).find("messages: not valid JSON"), std::string::npos);
  const std::string deep(100000, '[');
  input.messages_json = deep;
  EXPECT_NE(render_chat("", input).find("nested deeper than 150"), std::string::npos);
}

TEST(ChatInputTest, BigIntegersAndKeyOrderSurvive) {
  ChatInput input;
  input.messages_json = R"([{"z": 123456789012345678901234567890, "a": -9223372036854775808,
                             "m": 1.0, "z2": 18446744073709551615}])";
  EXPECT_EQ(render_chat("{{ messages[0]|tojson }}", input),
            R"({"z": 123456789012345678901234567890, "a": -9223372036854775808, "m": 1.0, )"
            R"("z2": 18446744073709551615})");
}

}  // namespace
}  // namespace sluice
