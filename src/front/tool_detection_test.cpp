// The formats of real chat templates: what a template prints of a call is read back as that call.
#include "front/tool_detection.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "base/json.h"
#include "base/rng.h"
#include "front/chat_prompt.h"
#include "front/tool_call_stream.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view kToolsJson =
    R"([{"type":"function","function":{"name":"get_weather","description":"w","parameters":
        {"type":"object","properties":{"city":{"type":"string","description":"c"},
         "days":{"type":"integer","description":"d"}},"required":["city"]}}}])";

ChatTemplates load_template(const fs::path& file) {
  const fs::path directory =
      fs::path(testing::TempDir()) / ("tool_detection_test_" + std::to_string(getpid()));
  fs::remove_all(directory);
  fs::create_directories(directory);
  fs::copy_file(file, directory / "chat_template.jinja");
  std::ofstream(directory / "tokenizer_config.json") << R"({"bos_token":"<s>","eos_token":"</s>"})";
  auto loaded = ChatTemplates::load(directory.string());
  fs::remove_all(directory);
  EXPECT_TRUE(loaded) << loaded.error().message;
  return *std::move(loaded);
}

// The files of real templates, with the format of each; "" = none of ours.
class RealTemplates : public testing::Test {
 protected:
  void SetUp() override {
    const char* shared = std::getenv("SLUICE_SHARED_DATA");
    if (shared == nullptr || !fs::exists(fs::path(shared) / "templates")) {
      GTEST_SKIP() << "SLUICE_SHARED_DATA is not set or has no templates/: nothing was read";
    }
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(shared) / "templates")) {
      if (entry.path().extension() == ".jinja") files_[entry.path().stem().string()] = entry.path();
    }
  }

  std::map<std::string, fs::path> files_;
};

TEST_F(RealTemplates, TheFormatIsFound) {
  const std::map<std::string, std::string> expected = {
      {"Qwen-Qwen2.5-7B-Instruct", "hermes"},
      {"Qwen-Qwen3-0.6B", "hermes"},
      {"Qwen-QwQ-32B", "hermes"},
      {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes"},
      {"MiMo-VL", "hermes"},
      {"Bielik-11B-v3.0-Instruct", "hermes"},
      {"Reka-Edge", "hermes"},
      {"Qwen3-Coder", "qwen3_coder"},
      {"Qwen3.5-4B", "qwen3_coder"},
      {"StepFun3.5-Flash", "qwen3_coder"},
      {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "qwen3_coder"},
      {"ByteDance-Seed-OSS", "seed_oss"},
      {"GLM-4.6", "glm45"},
      {"GLM-4.7-Flash", "glm45"},
      {"GLM-5.2", "glm45"},
      {"mistralai-Mistral-Nemo-Instruct-2407", "mistral"},
      {"Mistral-Small-3.2-24B-Instruct-2506", "mistral"},
      {"unsloth-mistral-Devstral-Small-2507", "mistral"},
      {"mistralai-Ministral-3-14B-Reasoning-2512", "mistral"},
      {"v11", "mistral"},
      {"v13", "mistral"},
      {"meta-llama-Llama-3.1-8B-Instruct", "llama3_json"},
      {"meta-llama-Llama-3.2-3B-Instruct", "llama3_json"},
      {"meta-llama-Llama-3.3-70B-Instruct", "llama3_json"},
      {"deepseek-ai-DeepSeek-V3.2", "deepseek_v32"},
      {"deepseek-ai-DeepSeek-V4", "deepseek_v4"},
      {"moonshotai-Kimi-K2", "kimi_k2"},
      {"meetkai-functionary-medium-v3.1", "functionary_v3"},
      {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "cohere"},
      {"CohereForAI-c4ai-command-r-plus-tool_use", "command_r_plus"},
      {"unsloth-Apriel-1.5", "apriel"},
      {"Apertus-8B-Instruct", "apertus"},
      {"GigaChat3.1-10B-A1.8B", "gigachat3"},
      // These show no tools, so that requests with tools are refused.
      {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", ""},
      {"deepseek-ai-DeepSeek-V3.1", ""},
      {"openai-gpt-oss-120b", "openai"},
      {"google-gemma-4-31B-it", "gemma4"},
      {"google-gemma-4-31B-it-interleaved", "gemma4"},
      {"meetkai-functionary-medium-v3.2", "functionary_v32"},
      {"GigaChat3-10B-A1.8B", "gigachat3_role"},
      // These print no call.
      {"google-gemma-2-2b-it", ""},
      {"microsoft-Phi-3.5-mini-instruct", ""},
      {"ibm-granite-granite-3.3-2B-Instruct", ""},
  };
  for (const auto& [file, format] : expected) {
    ASSERT_TRUE(files_.contains(file)) << file;
    const ToolFormat* found = detect_tool_format(load_template(files_.at(file)));
    EXPECT_EQ(found == nullptr ? "" : found->name, format) << file;
  }
}

std::string render(const ChatTemplates& templates, const Json& messages, ToolArguments arguments) {
  const std::string text = dump_json(messages);
  ChatParts parts;
  parts.messages_json = text;
  parts.tools_json = kToolsJson;
  parts.add_generation_prompt = false;
  parts.tool_arguments = arguments;
  parts.content_parts = ContentParts::kJoinedText;
  const auto rendered = render_chat(templates, parts, std::chrono::local_seconds{});
  return rendered ? *rendered : std::string();
}

// Every template that shows tools and prints a call: its format is known.
TEST_F(RealTemplates, NoTemplateThatPrintsCallsIsLeftOut) {
  for (const auto& [file, path] : files_) {
    const ChatTemplates templates = load_template(path);
    const auto chosen = templates.choose(ToolsGiven::kYes);
    if (!chosen || !(*chosen)->reads_tools() || detect_tool_format(templates) != nullptr) continue;
    const Json call = {
        {"id", "abcdefghi"},
        {"type", "function"},
        {"function", {{"name", "get_weather"}, {"arguments", R"({"city":"Quito"})"}}}};
    const Json messages = {
        {{"role", "user"}, {"content", "my question"}},
        {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({call})}}};
    for (const ToolArguments given : {ToolArguments::kParsed, ToolArguments::kAsGiven}) {
      const std::string text = render(templates, messages, given);
      EXPECT_EQ(text.find("Quito"), std::string::npos) << file << ": " << text;
    }
  }
}

Json random_value(SplitMix64& random, int depth) {
  constexpr std::string_view kTexts[] = {"Zürich",      "a \"b\"",    "x y",    "5",  "true",
                                         "line\nbreak", "{\"k\": 1}", "</tool", "é你"};
  switch (random.below(depth > 0 ? 6 : 4)) {
    case 0: return static_cast<std::int64_t>(random.below(1000)) - 500;
    case 1: return random.below(2) == 0;
    case 2: return 0.5;
    case 3: return kTexts[random.below(std::size(kTexts))];
    case 4: return Json::array({random_value(random, depth - 1), 7});
    default: return Json{{"inner", random_value(random, depth - 1)}};
  }
}

// Whether the template's text of a call is that call again.
void expect_call_back(const std::string& file, const ChatTemplates& templates,
                      const ToolFormat& format, const Json& arguments) {
  const Json call = {{"id", "abcdefghi"},
                     {"type", "function"},
                     {"function", {{"name", "get_weather"}, {"arguments", dump_json(arguments)}}}};
  const Json messages = {
      {{"role", "user"}, {"content", "my question"}},
      {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({call})}},
      {{"role", "tool"},
       {"tool_call_id", "abcdefghi"},
       {"name", "get_weather"},
       {"content", "my result"}}};
  const ToolParameters parameters = ToolParameters::from_json(kToolsJson);
  for (const ToolArguments given : {ToolArguments::kParsed, ToolArguments::kAsGiven}) {
    const std::string text = render(templates, messages, given);
    const std::size_t question = text.rfind("my question");
    if (question == std::string::npos) continue;
    std::size_t from = question + std::string_view("my question").size();
    if (format.begin.empty()) from = text.find('{', from);
    std::string answer = text.substr(from, text.find("my result") - from);
    // Up to each bracket: what ends the turn is not known here.
    while (!answer.empty()) {
      ToolCallStream stream(format, parameters);
      std::string content;
      std::vector<ToolCall> calls;
      stream.push(answer, content, calls);
      stream.finish(TextEnd::kComplete, content, calls);
      if (calls.size() == 1 && calls[0].name == "get_weather" &&
          parse_ordered_json(calls[0].arguments) == arguments) {
        return;
      }
      answer.resize(format.end.empty() ? answer.find_last_of("}]", answer.size() - 2) + 1 : 0);
      if (answer.size() == 1) answer.clear();
    }
  }
  ADD_FAILURE() << file << " (" << format.name << "): " << dump_json(arguments);
}

TEST_F(RealTemplates, CallsAreReadBack) {
  int templates_read = 0;
  for (const auto& [file, path] : files_) {
    const ChatTemplates templates = load_template(path);
    const ToolFormat* format = detect_tool_format(templates);
    if (format == nullptr) continue;
    ++templates_read;
    SplitMix64 random(5);
    // Values that stand without quotes keep their types only by the tool's schema.
    const bool quoted = format->body != ToolBody::kFunctionTags &&
                        format->body != ToolBody::kArgPairs && format->body != ToolBody::kInvokes;
    for (int i = 0; i < 12; ++i) {
      Json arguments = {{"city", i % 2 == 0 ? "Zürich \"x\"" : "12"}, {"days", i}};
      if (quoted) arguments["more"] = random_value(random, 3);
      expect_call_back(file, templates, *format, arguments);
    }
  }
  EXPECT_GE(templates_read, 66);
}

}  // namespace
}  // namespace sluice
