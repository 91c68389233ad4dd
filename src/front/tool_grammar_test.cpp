// Forced calls, in all formats: random answers that keep to the grammar are read back as calls that
// are valid for the tools' schemas.
#include "front/tool_grammar.h"
#include "base/file.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "front/answer_grammar.h"
#include "front/tool_call_stream.h"
#include "grammar/grammar_matcher.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/demo_model.h"
#include "tests/support/sanitized.h"

namespace sluice {
namespace {

using PlainJson = nlohmann::json;

constexpr std::string_view kCityTools =
    R"([{"type":"function","function":{"name":"get_weather","parameters":{"type":"object",
        "properties":{"city":{"type":"string"},"days":{"type":"integer","minimum":0,"maximum":7},
          "unit":{"type":"string","enum":["c","f"]},"near":{"$ref":"#/$defs/places"}},
        "required":["city","days"],"additionalProperties":false,
        "$defs":{"places":{"type":"array","items":{"type":"string"},"maxItems":2}}}}},
       {"type":"function","function":{"name":"now","strict":true}}])";

JsonValue json_tree(const PlainJson& value) {
  if (value.is_object()) {
    JsonValue::Object object;
    for (const auto& [key, member] : value.items()) object.push_back({key, json_tree(member)});
    return JsonValue{std::move(object)};
  }
  if (value.is_array()) {
    JsonValue::Array array;
    for (const PlainJson& item : value) array.push_back(json_tree(item));
    return JsonValue{std::move(array)};
  }
  if (value.is_string()) return JsonValue{value.get<std::string>()};
  if (value.is_boolean()) return JsonValue{value.get<bool>()};
  if (value.is_number_integer()) return JsonValue{value.get<std::int64_t>()};
  return JsonValue{};
}

const JsonValue& city_tools() {
  static const JsonValue tools = json_tree(parse_json(kCityTools));
  return tools;
}

// The demo model's tokenizer, in which the markers of calls are special tokens.
const ServedModel& marker_model() {
  static const ServedModel model = [] {
    const TempDirectory directory;
    PlainJson tokenizer = parse_json(read_file("models/demo/tokenizer.json", 1 << 26).value());
    std::size_t id = tokenizer["model"]["vocab"].size();
    for (const PlainJson& token : tokenizer["added_tokens"]) {
      id = std::max(id, token["id"].get<std::size_t>() + 1);
    }
    for (const char* text :
         {"<tool_call>", "[TOOL_CALLS]", "[ARGS]", "</arg_value>", "<｜tool▁calls▁begin｜>",
          "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>",
          "｜DSML｜", "<|channel|>", "<|constrain|>", "<|message|>", "<|tool_call>", "<tool_call|>",
          "<|\"|>", "<escape>", "<|tool_call_start|>"}) {
      PlainJson token = tokenizer["added_tokens"][0];
      token["id"] = id++;
      token["content"] = text;
      token["special"] = true;
      tokenizer["added_tokens"].push_back(token);
    }
    directory.write("tokenizer.json", dump_json(tokenizer));
    EngineFacts facts;
    facts.limits = {.vocab_size = 4096, .max_model_len = 256, .num_adapters = 0};
    facts.block_size = 16;
    facts.kv_identity.block_size = 16;
    auto loaded = load_served_model(directory.path(), "m", 1, std::move(facts));
    EXPECT_TRUE(loaded) << loaded.error().message;
    return *std::move(loaded);
  }();
  return model;
}

const ServedModel& plain_model() {
  static const ServedModel model = test::load_demo_model(256);
  return model;
}

TokenGrammarPtr grammar_of(const ServedModel& model, std::string_view format,
                           const ToolChoice& choice) {
  auto answer = tool_grammar(model.tokenizer, *find_tool_format(format), city_tools(), choice);
  EXPECT_TRUE(answer) << answer.error().message;
  GrammarSpec spec;
  spec.kind = GrammarKind::kTagged;
  spec.text = std::string(format) + choice.name + (choice.required ? "r" : "") +
              (choice.parallel ? "p" : "");
  spec.tagged = *std::move(answer);
  auto grammar = compile_answer_grammar(model, spec, nullptr, false);
  EXPECT_TRUE(grammar) << grammar.error().message;
  return *grammar;
}

// Random answers would hardly ever write the end of a text. So a character that continues an end
// is often preferred.
std::string preferred(std::string_view text, SplitMix64& random) {
  std::string next;
  for (const std::string_view end : {"</parameter>", "</arg_value>", "</｜DSML｜parameter>", "\"}",
                                     "\"]", "<|\"|>", "<escape>", "\")", "\","}) {
    std::size_t n = std::min(end.size() - 1, text.size());
    while (n > 0 && !text.ends_with(end.substr(0, n))) --n;
    if (n > 0) next += end[n];
  }
  return next.empty() ? "<" : std::string(1, next[random.below(next.size())]);
}

// A random answer; empty if it did not end in time.
std::string random_answer(const ServedModel& model, const TokenGrammarPtr& grammar,
                          SplitMix64& random) {
  GrammarMatcher matcher;
  matcher.assign(grammar);
  std::vector<TokenId> ids;
  std::vector<std::uint32_t> mask(grammar->trie().mask_words());
  std::string text;
  const auto allows = [&](TokenId id) {
    return (mask[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1U) != 0;
  };
  for (int step = 0; step < 1500; ++step) {
    if (matcher.can_end() && random.below(2) == 0) {
      return model.tokenizer.decode(ids, SkipSpecialTokens::kNo);
    }
    matcher.fill(mask);
    std::vector<TokenId> allowed;
    std::vector<TokenId> ends;
    std::vector<TokenId> quotes;
    const std::string end = preferred(text, random);
    for (TokenId id = 0; id < grammar->trie().vocab_size(); ++id) {
      if (!allows(id)) continue;
      allowed.push_back(id);
      const std::string_view bytes = grammar->trie().bytes(id);
      if (bytes == end || bytes.front() == '\xFF') ends.push_back(id);
      if (bytes == "\"") quotes.push_back(id);
    }
    if (allowed.empty()) break;
    const auto& first = random.below(5) == 0 ? quotes : ends;
    const auto& from = first.empty() || random.below(20) == 0 ? allowed : first;
    ids.push_back(from[random.below(from.size())]);
    EXPECT_TRUE(matcher.accept(ids.back()));
    text += grammar->trie().bytes(ids.back());
  }
  return matcher.can_end() ? model.tokenizer.decode(ids, SkipSpecialTokens::kNo) : std::string();
}

void expect_valid(const ToolCall& call) {
  const PlainJson arguments = parse_json(call.arguments);
  if (call.name == "now") {
    EXPECT_EQ(arguments, PlainJson::object());
    return;
  }
  ASSERT_EQ(call.name, "get_weather");
  ASSERT_TRUE(arguments.contains("city") && arguments["city"].is_string()) << arguments;
  ASSERT_TRUE(arguments["days"].is_number_integer()) << arguments;
  EXPECT_TRUE(arguments["days"] >= 0 && arguments["days"] <= 7) << arguments;
  if (arguments.contains("unit")) {
    EXPECT_TRUE(arguments["unit"] == "c" || arguments["unit"] == "f");
  }
  if (arguments.contains("near")) {
    ASSERT_TRUE(arguments["near"].is_array() && arguments["near"].size() <= 2) << arguments;
    for (const PlainJson& place : arguments["near"]) EXPECT_TRUE(place.is_string());
  }
  for (const auto& [key, value] : arguments.items()) {
    EXPECT_TRUE(key == "city" || key == "days" || key == "unit" || key == "near") << key;
  }
}

std::vector<ToolCall> read_calls(const ToolFormat& format, std::string_view answer,
                                 std::size_t piece, std::string& content) {
  static const ToolParameters parameters = ToolParameters::from_json(kCityTools);
  ToolCallStream stream(format, parameters);
  std::vector<ToolCall> calls;
  for (std::size_t at = 0; at < answer.size(); at += piece) {
    stream.push(answer.substr(at, piece), content, calls);
  }
  stream.finish(TextEnd::kComplete, content, calls);
  return calls;
}

TEST(ToolGrammar, ForcedAnswersOfAllFormatsAreReadBack) {
  for (const ServedModel* model : {&plain_model(), &marker_model()}) {
    for (const ToolFormat& format : tool_formats()) {
      SplitMix64 random(11);
      int ended = 0;
      const auto grammar = grammar_of(*model, format.name, {.required = true});
      for (int i = 0; i < 12 && ended < rounds(4); ++i) {
        const std::string answer = random_answer(*model, grammar, random);
        if (answer.empty()) continue;
        ++ended;
        std::string content;
        const auto calls = read_calls(format, answer, answer.size(), content);
        EXPECT_FALSE(calls.empty()) << format.name << ": " << answer;
        EXPECT_EQ(content, "") << format.name << ": " << answer;
        for (const ToolCall& call : calls) expect_valid(call);
        std::string streamed;
        EXPECT_EQ(read_calls(format, answer, 1, streamed), calls) << format.name << ": " << answer;
        EXPECT_EQ(streamed, "");
      }
      EXPECT_GT(ended, 0) << format.name;
    }
  }
}

bool accepts(const TokenGrammarPtr& grammar, std::string_view text) {
  GrammarMatcher matcher;
  matcher.assign(grammar);
  const auto ids = marker_model().tokenizer.encode(text, {AddSpecialTokens::kNo});
  for (const TokenId id : *ids) {
    if (!matcher.accept(id)) return false;
  }
  return matcher.can_end();
}

TEST(ToolGrammar, TheChoiceBoundsCalls) {
  const std::string now = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  const std::string weather =
      "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": 3}}\n</tool_call>";
  const auto any = grammar_of(marker_model(), "hermes", {.required = true});
  EXPECT_TRUE(accepts(any, now));
  EXPECT_TRUE(accepts(any, now + "\n" + now));
  EXPECT_FALSE(accepts(any, "Well. " + now));
  EXPECT_FALSE(accepts(any, weather));
  const auto one = grammar_of(marker_model(), "hermes", {.required = true, .parallel = false});
  EXPECT_TRUE(accepts(one, now));
  EXPECT_FALSE(accepts(one, now + "\n" + now));
  const auto named =
      grammar_of(marker_model(), "hermes", {.required = true, .name = "get_weather"});
  EXPECT_FALSE(accepts(named, now));
  // Free text in front; only the strict tool's schema holds.
  const auto free = grammar_of(marker_model(), "hermes", {.parallel = false});
  EXPECT_TRUE(accepts(free, "A <tool_ is no call."));
  EXPECT_TRUE(accepts(free, "Well. " + now));
  EXPECT_TRUE(accepts(free, weather));
  EXPECT_FALSE(accepts(free, "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": 1}}"));
  EXPECT_FALSE(accepts(free, now + now));
  const auto whole = grammar_of(marker_model(), "llama3_json", {.parallel = false});
  EXPECT_TRUE(accepts(whole, "It is late."));
  EXPECT_TRUE(accepts(whole, R"({"name": "now", "parameters": {}})"));
  EXPECT_FALSE(accepts(whole, R"({"name": "no", "parameters": {}})"));
}

TEST(ToolGrammar, FormatsWithBracketsSeparatePairs) {
  const auto python = grammar_of(marker_model(), "pythonic", {.required = true});
  EXPECT_TRUE(accepts(python, R"([now()])"));
  EXPECT_TRUE(accepts(python, R"([get_weather(city="a", days=3), now()])"));
  EXPECT_TRUE(accepts(python, R"([get_weather(city="a", days=3, near=["b"])])"));
  EXPECT_FALSE(accepts(python, R"([get_weather(city="a", days=9)])"));
  EXPECT_FALSE(accepts(python, R"([get_weather(city="a",, days=3)])"));
  EXPECT_FALSE(accepts(python, R"([get_weather(days=3)])"));
  const auto gemma = grammar_of(marker_model(), "gemma4", {.required = true});
  EXPECT_TRUE(accepts(gemma, R"(<|tool_call>call:now{}<tool_call|>)"));
  EXPECT_TRUE(accepts(
      gemma, R"(<|tool_call>call:get_weather{city:<|"|>a, "b"<|"|>,days:3,unit:<|"|>c<|"|>})"
             R"(<tool_call|>)"));
  EXPECT_FALSE(accepts(gemma, R"(<|tool_call>call:get_weather{city:a,days:3}<tool_call|>)"));
  // Text beside: free, if it begins unlike a call.
  const auto free = grammar_of(marker_model(), "pythonic", {.parallel = false});
  EXPECT_TRUE(accepts(free, "It is {late}."));
  EXPECT_FALSE(accepts(free, "[1, 2]"));
  // Any pairs of a tool whose schema is not enforced.
  EXPECT_TRUE(accepts(free, R"([get_weather(city=[1], x="y")])"));
  const auto functionary = grammar_of(marker_model(), "functionary_v32", {.parallel = false});
  EXPECT_TRUE(accepts(functionary, "all\nIt is late."));
  EXPECT_TRUE(accepts(functionary, "now\n{}"));
  EXPECT_FALSE(accepts(functionary, "It is late."));
  const auto harmony = grammar_of(marker_model(), "openai", {.parallel = false});
  EXPECT_TRUE(accepts(harmony, "<|channel|>final<|message|>Hello."));
  EXPECT_TRUE(accepts(harmony, "Hello."));
  EXPECT_TRUE(
      accepts(harmony, "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}"));
}

TEST(ToolGrammar, ToolsThatGrammarsCannotHoldAreNamed) {
  const auto error = [](std::string_view format, std::string_view function) {
    const JsonValue tools =
        json_tree(parse_json(R"([{"type":"function","function":)" + std::string(function) + "}]"));
    const auto answer =
        tool_grammar(plain_model().tokenizer, *find_tool_format(format), tools, {.required = true});
    if (!answer) return answer.error().message;
    const auto grammar = tagged_grammar(*answer);
    return grammar ? std::string() : grammar.error().message;
  };
  EXPECT_EQ(error("hermes", R"({"name":"a b"})").find("tools[0].function.name: "), 0U);
  EXPECT_EQ(error("hermes", R"({"name":"f","parameters":{"type":"string"}})"),
            "tools[0].function.parameters: must be of type \"object\"");
  EXPECT_EQ(
      error("qwen3_coder",
            R"({"name":"f","parameters":{"properties":{"a":{"type":"string","pattern":"x"}}}})")
          .find("tools[0].function.parameters: at #/properties/a: pattern"),
      0U);
  EXPECT_EQ(error("pythonic", R"({"name":"f","parameters":{"properties":{"a b":{}}}})")
                .find("tools[0].function.parameters: at #/properties/a b: a property's name"),
            0U);
  EXPECT_EQ(error("hermes", R"({"name":"f","parameters":{"not":{}}})")
                .find("tools[0].function.parameters: at #: "),
            0U);
}

}  // namespace
}  // namespace sluice
