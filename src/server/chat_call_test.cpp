#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "server/generation_call.h"
#include "server/request_json.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

constexpr std::string_view kUser = R"([{"role":"user","content":"hi"}])";

std::string json_of(const JsonValue& value) {
  std::string out;
  append_json(value, out);
  return out;
}

// A chat with `fields` after model and messages.
std::string chat(std::string_view fields, std::string_view messages = kUser) {
  std::string body = R"({"model":"demo","messages":)";
  body += messages;
  if (!fields.empty()) body += ',';
  body += fields;
  return body + "}";
}

GenerationCall parsed(const std::string& body) {
  auto call = parse_chat_call(body);
  EXPECT_TRUE(call) << body << "\n" << call.error().message;
  return call ? *call : GenerationCall{};
}

struct Fault {
  std::string fields;
  std::string param;
  std::string message;  // part of it
  bool unsupported = false;
};

void expect_fault(const std::string& body, const Fault& fault) {
  const auto call = parse_chat_call(body);
  ASSERT_FALSE(call) << body;
  EXPECT_EQ(call.error().status, 400);
  EXPECT_EQ(call.error().type, "invalid_request_error");
  EXPECT_EQ(call.error().param, fault.param) << body;
  EXPECT_THAT(call.error().message, HasSubstr(fault.message)) << body;
  EXPECT_EQ(call.error().code, fault.unsupported ? "unsupported" : "") << body;
}

TEST(ParseChatCall, DefaultsAreThoseOfTheApi) {
  const GenerationCall call = parsed(chat(""));
  EXPECT_EQ(call.kind, ApiKind::kChat);
  EXPECT_EQ(call.model, "demo");
  EXPECT_EQ(json_of(call.chat.messages), kUser);
  EXPECT_TRUE(call.chat.tools.is_null());
  EXPECT_TRUE(call.chat.variables.is_null());
  EXPECT_TRUE(call.chat.add_generation_prompt);
  EXPECT_FALSE(call.chat.continue_final_message);
  EXPECT_EQ(call.sampling, SamplingParams{});
  EXPECT_FALSE(call.given.max_tokens || call.given.temperature || call.given.seed);
  EXPECT_FALSE(call.stream || call.include_usage || call.echo || call.return_token_ids);
  EXPECT_FALSE(call.add_special_tokens);
  EXPECT_TRUE(call.skip_special_tokens);
}

TEST(ParseChatCall, ReadsEveryServedField) {
  const GenerationCall call = parsed(chat(
      R"("temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.05,"repetition_penalty":1.1,
      "presence_penalty":-2,"frequency_penalty":2,"seed":-1,"n":3,"max_completion_tokens":7.0,
      "min_tokens":2,"stop":["a","b"],"stop_token_ids":[5,6],"ignore_eos":true,
      "include_stop_str_in_output":true,"logit_bias":{"7":-100,"3":2.5},"logprobs":true,
      "top_logprobs":4,"stream":true,"stream_options":{"include_usage":true,
      "continuous_usage_stats":true},"user":"ann","cache_salt":"s","priority":-2,
      "return_token_ids":true,"add_special_tokens":true,"skip_special_tokens":false,
      "add_generation_prompt":false,"continue_final_message":true,
      "chat_template_kwargs":{"b":1,"a":[2.0]}, "tools":[{"type":"function","function":
      {"name":"f","parameters":{"z":1,"a":2}}}],"tool_choice":"auto")"));
  const SamplingParams& sampling = call.sampling;
  EXPECT_EQ(sampling.temperature, 0.5F);
  EXPECT_EQ(sampling.top_p, 0.9F);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_EQ(sampling.min_p, 0.05F);
  EXPECT_EQ(sampling.repetition_penalty, 1.1F);
  EXPECT_EQ(sampling.presence_penalty, -2.0F);
  EXPECT_EQ(sampling.frequency_penalty, 2.0F);
  EXPECT_EQ(sampling.seed, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(sampling.n, 3);
  EXPECT_EQ(sampling.max_tokens, 7);
  EXPECT_EQ(sampling.min_tokens, 2);
  EXPECT_THAT(sampling.stop, ElementsAre("a", "b"));
  EXPECT_THAT(sampling.stop_token_ids, ElementsAre(5, 6));
  EXPECT_TRUE(sampling.ignore_eos && sampling.include_stop_str_in_output);
  EXPECT_THAT(sampling.logit_bias, ElementsAre(Pair(3, 2.5F), Pair(7, -100.0F)));
  EXPECT_EQ(sampling.logprobs, 4);
  EXPECT_TRUE(call.given.temperature && call.given.top_p && call.given.top_k && call.given.min_p);
  EXPECT_TRUE(call.given.repetition_penalty && call.given.max_tokens && call.given.seed);
  EXPECT_TRUE(call.stream && call.include_usage && call.continuous_usage_stats);
  EXPECT_TRUE(call.return_token_ids && call.add_special_tokens && !call.skip_special_tokens);
  EXPECT_EQ(call.user, "ann");
  EXPECT_EQ(call.cache_salt, "s");
  EXPECT_EQ(call.priority, -2);
  EXPECT_FALSE(call.chat.add_generation_prompt);
  EXPECT_TRUE(call.chat.continue_final_message);
  EXPECT_EQ(json_of(call.chat.variables), R"({"b":1,"a":[2.0]})");
  EXPECT_EQ(json_of(call.chat.tools),
            R"([{"type":"function","function":{"name":"f","parameters":{"z":1,"a":2}}}])");
}

TEST(ParseChatCall, NullIsAsNotGiven) {
  std::string fields;
  for (const char* name : {"temperature",
                           "top_p",
                           "top_k",
                           "min_p",
                           "repetition_penalty",
                           "presence_penalty",
                           "frequency_penalty",
                           "seed",
                           "n",
                           "max_completion_tokens",
                           "max_tokens",
                           "min_tokens",
                           "stop",
                           "stop_token_ids",
                           "ignore_eos",
                           "include_stop_str_in_output",
                           "logit_bias",
                           "logprobs",
                           "top_logprobs",
                           "stream",
                           "stream_options",
                           "user",
                           "cache_salt",
                           "priority",
                           "return_token_ids",
                           "add_special_tokens",
                           "skip_special_tokens",
                           "add_generation_prompt",
                           "continue_final_message",
                           "chat_template_kwargs",
                           "tools",
                           "tool_choice",
                           "response_format",
                           "audio",
                           "functions",
                           "function_call",
                           "store",
                           "metadata",
                           "web_search_options",
                           "reasoning_effort",
                           "verbosity",
                           "prediction",
                           "modalities",
                           "service_tier",
                           "safety_identifier",
                           "prompt_cache_key",
                           "parallel_tool_calls",
                           "use_beam_search",
                           "structured_outputs",
                           "documents",
                           "chat_template"}) {
    if (!fields.empty()) fields += ',';
    fields += '"' + std::string(name) + "\":null";
  }
  const GenerationCall call = parsed(chat(fields));
  EXPECT_EQ(call.sampling, SamplingParams{});
  EXPECT_FALSE(call.given.max_tokens || call.given.temperature || call.given.seed);
}

TEST(ParseChatCall, NeutralValuesOfUnservedFieldsAreAccepted) {
  parsed(chat(R"("response_format":{"type":"text"},"modalities":["text"],"store":false,
      "service_tier":"auto","metadata":{"k":"v"},"prompt_cache_key":"k","verbosity":"medium",
      "parallel_tool_calls":true,"functions":[],"function_call":"none","echo":false,
      "prediction":{"type":"content","content":"x"},"use_beam_search":false,"length_penalty":1,
      "spaces_between_special_tokens":true,"bad_words":[],"thinking_token_budget":-1,
      "include_reasoning":true,"stream_interval":1,"documents":[],"session_id":"a",
      "prompt_cache_retention":"in_memory","top_logprobs":0,"tool_choice":"auto")"));
  parsed(chat(R"("stream":true,"stream_options":{"include_obfuscation":false})"));
  parsed(chat(R"("parallel_tool_calls":false,"service_tier":"default")"));
}

TEST(ParseChatCall, ACallMayKeepItsKvInMemory) {
  EXPECT_FALSE(parsed(chat("")).kv_memory_only);
  EXPECT_FALSE(parsed(chat(R"("prompt_cache_retention":"24h")")).kv_memory_only);
  EXPECT_FALSE(parsed(chat(R"("prompt_cache_retention":null)")).kv_memory_only);
  EXPECT_TRUE(parsed(chat(R"("prompt_cache_retention":"in_memory")")).kv_memory_only);
  EXPECT_TRUE(parsed(chat(R"("prompt_cache_retention":"in-memory")")).kv_memory_only);
}

TEST(ParseChatCall, UnservedFieldsAreRefusedByName) {
  const Fault faults[] = {
      {R"("response_format":{"type":"xml"})", "response_format", "\"xml\"", true},
      {R"("tool_choice":"sometimes")", "tool_choice", "\"required\"", true},
      {R"("tool_choice":{"type":"allowed_tools"})", "tool_choice", "an object", true},
      {R"("tools":[{"type":"custom","custom":{}}])", "tools[0].type", "\"custom\"", true},
      {R"("functions":[{"name":"f"}])", "functions", "use tools", true},
      {R"("function_call":{"name":"f"})", "function_call", "use tools", true},
      {R"("modalities":["text","audio"])", "modalities", "only [\"text\"]", true},
      {R"("audio":{"voice":"x"})", "audio", "answers are text", true},
      {R"("web_search_options":{})", "web_search_options", "searches nothing", true},
      {R"("store":true)", "store", "accepts only false", true},
      {R"("service_tier":"flex")", "service_tier", "use priority", true},
      {R"("verbosity":"low")", "verbosity", "only \"medium\"", true},
      {R"("echo":true)", "echo", "continue_final_message", true},
      {R"("use_beam_search":true)", "use_beam_search", "use", true},
      {R"("length_penalty":0.5)", "length_penalty", "accepts only 1", true},
      {R"("structured_outputs":{"regex":"a","structural_tag":"b"})",
       "structured_outputs.structural_tag", "constrain the whole answer", true},
      {R"("chat_template":"{{ x }}")", "chat_template", "own template", true},
      {R"("documents":[{"text":"x"}])", "documents", "chat_template_kwargs", true},
      {R"("stream":true,"stream_options":{"include_obfuscation":true})",
       "stream_options.include_obfuscation", "no padding", true},
  };
  for (const Fault& fault : faults) expect_fault(chat(fault.fields), fault);
}

TEST(ParseChatCall, WrongTypesAndRangesNameTheField) {
  const Fault faults[] = {
      {R"("temperature":"hot")", "temperature", "temperature: got \"hot\"; expected a number"},
      {R"("temperature":true)", "temperature", "got true; expected a number"},
      {R"("temperature":-0.1)", "temperature", "between 0 and 100"},
      {R"("temperature":1e300)", "temperature", "got 1e300; expected a number"},
      {R"("top_p":0)", "top_p", "above 0 and at most 1"},
      {R"("top_p":1.5)", "top_p", "above 0 and at most 1"},
      {R"("top_k":-2)", "top_k", "from -1 to"},
      {R"("top_k":1.5)", "top_k", "got 1.5; expected a whole number"},
      {R"("top_k":3000000000)", "top_k", "expected a whole number from -1 to 2147483647"},
      {R"("min_p":1.1)", "min_p", "between 0 and 1"},
      {R"("repetition_penalty":0)", "repetition_penalty", "above 0"},
      {R"("presence_penalty":2.5)", "presence_penalty", "between -2 and 2"},
      {R"("frequency_penalty":-3)", "frequency_penalty", "between -2 and 2"},
      {R"("seed":9223372036854775808)", "seed", "got 9223372036854775808; expected a whole"},
      {R"("seed":"1")", "seed", "got \"1\""},
      {R"("n":0)", "n", "from 1 to 128"},
      {R"("n":129)", "n", "from 1 to 128"},
      {R"("n":true)", "n", "got true; expected a whole number"},
      {R"("max_tokens":0)", "max_tokens", "from 1 to 2147483647"},
      {R"("max_completion_tokens":-1)", "max_completion_tokens", "got -1"},
      {R"("max_tokens":4,"max_completion_tokens":5)", "max_tokens", "give one of them"},
      {R"("min_tokens":5,"max_completion_tokens":4)", "min_tokens", "between 0 and max_tokens (4)"},
      {R"("min_tokens":-1)", "min_tokens", "min_tokens"},
      {R"("stop":"")", "stop", "string of 1 to 1024 bytes"},
      {R"("stop":["a",""])", "stop[1]", "string of 1 to 1024 bytes"},
      {R"("stop":["a",null])", "stop[1]", "got null"},
      {R"("stop":5)", "stop", "got 5; expected a string or an array"},
      {R"("stop":["1","2","3","4","5","6","7","8","9","0","1","2","3","4","5","6","7"])", "stop",
       "got 17 strings; at most 16"},
      {R"("stop_token_ids":[1,-1])", "stop_token_ids[1]", "token id"},
      {R"("stop_token_ids":7)", "stop_token_ids", "expected an array"},
      {R"("logit_bias":[1])", "logit_bias", "expected an object"},
      {R"("logit_bias":{"a":1})", "logit_bias", "got the key \"a\""},
      {R"("logit_bias":{"1x":1})", "logit_bias", "got the key \"1x\""},
      {R"("logit_bias":{"-1":1})", "logit_bias", "expected a token id"},
      {R"("logit_bias":{"5":101})", "logit_bias.5", "from -100 to 100"},
      {R"("logit_bias":{"5":"x"})", "logit_bias.5", "got \"x\""},
      {R"("logprobs":3)", "logprobs", "got 3; expected true or false"},
      {R"("logprobs":true,"top_logprobs":21)", "top_logprobs", "from 0 to 20"},
      {R"("top_logprobs":2)", "top_logprobs", "without \"logprobs\": true"},
      {R"("stream":"yes")", "stream", "expected true or false"},
      {R"("stream_options":{"include_usage":true})", "stream_options", "without \"stream\": true"},
      {R"("stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage",
       "got 1; expected true or false"},
      {R"("stream":true,"stream_options":{"includ_usage":true})", "stream_options.includ_usage",
       "in stream_options; did you mean \"include_usage\"?"},
      {R"("user":5)", "user", "expected a string"},
      {R"("cache_salt":"")", "cache_salt", "is empty"},
      {R"("prompt_cache_retention":"disk")", "prompt_cache_retention", "got \"disk\""},
      {R"("prompt_cache_retention":5)", "prompt_cache_retention", "expected a string"},
      {R"("priority":2147483648)", "priority", "whole number"},
      {R"("tools":{})", "tools", "expected an array"},
      {R"("tools":[5])", "tools[0]", "got 5"},
      {R"("tools":[{"type":"function"}])", "tools[0].function", "is missing"},
      {R"("tools":[{"type":"function","function":{}}])", "tools[0].function.name", "is missing"},
      {R"("response_format":"text")", "response_format", "expected an object"},
      {R"("response_format":{})", "response_format", "has no type"},
      {R"("metadata":{"k":1})", "metadata", "object of strings"},
      {R"("reasoning_effort":"huge")", "reasoning_effort", "\"xhigh\""},
      {R"("chat_template_kwargs":[])", "chat_template_kwargs", "expected an object"},
      {R"("chat_template_kwargs":{"messages":[]})", "chat_template_kwargs.messages", "itself"},
      {R"("add_generation_prompt":true,"continue_final_message":true)", "continue_final_message",
       "either continued"},
  };
  for (const Fault& fault : faults) expect_fault(chat(fault.fields), fault);
}

TEST(ParseChatCall, LogitBiasIsBounded) {
  std::string many;
  for (int i = 0; i <= 4096; ++i) many += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":1";
  expect_fault(chat(R"("logit_bias":{)" + many + "}"),
               {"", "logit_bias", "got 4097 tokens; at most 4096"});
  const GenerationCall call = parsed(chat(R"("logit_bias":{"5":1,"5":2})"));
  EXPECT_THAT(call.sampling.logit_bias, ElementsAre(Pair(5, 2.0F)));
}

TEST(ParseChatCall, UnknownFieldsAreRefusedWithTheNearestName) {
  expect_fault(chat(R"("temprature":1)"),
               {"", "temprature", R"(unknown field "temprature"; did you mean "temperature"?)"});
  expect_fault(chat(R"("max_token":1)"), {"", "max_token", R"(did you mean "max_tokens"?)"});
  expect_fault(chat(R"("colour":1)"), {"", "colour", "see docs/api.md"});
  expect_fault(chat(R"("x":1)"), {"", "x", "see docs/api.md"});
  expect_fault(chat('"' + std::string(5000, 'a') + "\":1"), {"", "", "... (5000 bytes)"});
}

TEST(ParseChatCall, UnknownFieldsAreListedWhenTheyAreIgnored) {
  const std::string long_name(5000, 'a');
  const auto call = parse_chat_call(
      chat(R"("temprature":1,"colour":{"a":[1]},"stream":true,"stream_options":{"x y":1},)"
           R"("colour":2,"user":"u",")" +
           long_name + "\":1"),
      UnknownFields::kIgnore);
  ASSERT_TRUE(call) << call.error().message;
  EXPECT_EQ(call->user, "u");
  EXPECT_EQ(call->sampling.temperature, 1.0F) << "the misspelt field has no effect";
  EXPECT_THAT(call->ignored_fields,
              ElementsAre(IgnoredField{"stream_options.x%20y", ""},
                          IgnoredField{"temprature", "temperature"}, IgnoredField{"colour", ""},
                          IgnoredField{std::string(64, 'a'), ""}));
}

TEST(ParseChatCall, ListsOfIgnoredFieldsAreBounded) {
  std::string fields;
  for (int i = 0; i < 900; ++i) fields += (i > 0 ? ",\"z" : "\"z") + std::to_string(i) + "\":0";
  const auto call = parse_chat_call(chat(fields), UnknownFields::kIgnore);
  ASSERT_TRUE(call) << call.error().message;
  EXPECT_EQ(call->ignored_fields.size(), kMaxIgnoredFields);
}

TEST(ParseChatCall, GrammarsComeUnderManyNames) {
  struct Case {
    const char* fields;
    const char* field;
    GrammarKind kind;
    const char* text;
  };
  const Case cases[] = {
      {R"("response_format":{"type":"json_object"})", "response_format", GrammarKind::kJsonObject,
       ""},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,
          "schema":{"type":"null"}}})",
       "response_format.json_schema.schema", GrammarKind::kJsonSchema, R"({"type":"null"})"},
      {R"("response_format":{"type":"json_object","schema":{"type":"null"}})",
       "response_format.schema", GrammarKind::kJsonSchema, R"({"type":"null"})"},
      {R"("structured_outputs":{"choice":["a","b"]})", "structured_outputs.choice",
       GrammarKind::kChoice, R"(["a","b"])"},
      {R"("structured_outputs":{"json_object":true})", "structured_outputs.json_object",
       GrammarKind::kJsonObject, ""},
      {R"("guided_json":"{\"type\": \"null\"}")", "guided_json", GrammarKind::kJsonSchema,
       R"({"type":"null"})"},
      {R"("guided_regex":"a+")", "guided_regex", GrammarKind::kRegex, "a+"},
      {R"("guided_grammar":"root ::= \"a\"")", "guided_grammar", GrammarKind::kGbnf,
       "root ::= \"a\""},
      {R"("grammar":"root ::= \"a\"")", "grammar", GrammarKind::kGbnf, "root ::= \"a\""},
      {R"("json_schema":true)", "json_schema", GrammarKind::kJsonSchema, "true"},
  };
  for (const Case& c : cases) {
    const GenerationCall call = parsed(chat(c.fields));
    ASSERT_TRUE(call.structured) << c.fields;
    EXPECT_EQ(call.structured->field, c.field);
    EXPECT_EQ(call.structured->spec.kind, c.kind) << c.fields;
    EXPECT_EQ(call.structured->spec.text, c.text);
  }
  EXPECT_FALSE(parsed(chat(R"("grammar":"","response_format":{"type":"text"})")).structured);
}

TEST(ParseChatCall, GrammarsNameTheirFaults) {
  const std::pair<const char*, const char*> faults[] = {
      {R"("guided_regex":"a","grammar":"root ::= b")", "grammar"},
      {R"("response_format":{"type":"json_object"},"guided_json":{})", "guided_json"},
      {R"("response_format":{"type":"json_schema","json_schema":{}})",
       "response_format.json_schema"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":5}})",
       "response_format.json_schema.schema"},
      {R"("guided_json":"{")", "guided_json"},
      {R"("guided_regex":5)", "guided_regex"},
      {R"("structured_outputs":{})", "structured_outputs"},
      {R"("structured_outputs":{"json":{},"regex":"a"})", "structured_outputs.regex"},
  };
  for (const auto& [fields, param] : faults) {
    const auto call = parse_chat_call(chat(fields));
    ASSERT_FALSE(call) << fields;
    EXPECT_EQ(call.error().param, param) << call.error().message;
  }
}

// A body's bounds do not see into its strings.
TEST(ParseChatCall, ASchemaGivenAsTextHasTheBoundsOfABody) {
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  const auto call = parse_chat_call(chat(R"("guided_json":")" + deep + "\""));
  ASSERT_FALSE(call);
  EXPECT_EQ(call.error().param, "guided_json");
  EXPECT_NE(call.error().message.find("nested deeper"), std::string::npos) << call.error().message;
}

TEST(ParseChatCall, ErrorsInASchemaGivenAsTextDoNotBlameTheBody) {
  const auto cut = parse_chat_call(chat(R"("guided_json":"{")"));
  ASSERT_FALSE(cut);
  EXPECT_THAT(cut.error().message,
              HasSubstr("guided_json: the text is not valid JSON at byte offset 1"));
}

TEST(ParseChatCall, KnownFieldsThatAreNotServedAreNeverIgnored) {
  const auto call = parse_chat_call(chat(R"("use_beam_search":true)"), UnknownFields::kIgnore);
  ASSERT_FALSE(call);
  EXPECT_EQ(call.error().param, "use_beam_search");
}

TEST(ParseChatCall, TokensAndTruncationNameTheirFaults) {
  const Fault faults[] = {
      {R"("allowed_token_ids":[])", "allowed_token_ids", "is empty"},
      {R"("allowed_token_ids":[1,-1])", "allowed_token_ids[1]", "token id"},
      {R"("bad_words":"x")", "bad_words", "expected an array"},
      {R"("bad_words":["x",""])", "bad_words[1]", "string of 1 to 256 bytes"},
      {R"("truncate_prompt_tokens":0)", "truncate_prompt_tokens", "is 0; expected at least 1"},
      {R"("truncate_prompt_tokens":-2)", "truncate_prompt_tokens", "from -1 to"},
      {R"("truncation_side":"middle")", "truncation_side", "expected \"left\" or \"right\""},
  };
  for (const Fault& fault : faults) expect_fault(chat(fault.fields), fault);
}

TEST(ParseChatCall, TokensMayBeRuledOutAndPromptsShortened) {
  const GenerationCall call =
      parsed(chat(R"("allowed_token_ids":[5,3],"bad_words":["a","b c"],)"
                  R"("truncate_prompt_tokens":-1,"truncation_side":"right")"));
  EXPECT_THAT(call.sampling.allowed_token_ids, ElementsAre(5, 3));
  EXPECT_THAT(call.bad_words, ElementsAre("a", "b c"));
  EXPECT_EQ(call.truncate_prompt_tokens, -1);
  EXPECT_EQ(call.truncation_side, TruncationSide::kRight);
  EXPECT_EQ(parsed(chat("")).truncate_prompt_tokens, std::nullopt);
  EXPECT_EQ(parsed(chat(R"("truncation_side":"left")")).truncation_side, TruncationSide::kLeft);
}

TEST(ParseChatCall, ModelAndMessagesAreRequired) {
  expect_fault(R"({"messages":[{"role":"user","content":"x"}]})", {"", "model", "is missing"});
  expect_fault(R"({"model":null,"messages":[]})", {"", "model", "is missing"});
  expect_fault(R"({"model":7,"messages":[]})", {"", "model", "got 7; expected a string"});
  expect_fault(R"({"model":"m"})", {"", "messages", "is missing"});
  expect_fault(R"({"model":"m","messages":[]})", {"", "messages", "is empty"});
  expect_fault(R"({"model":"m","messages":"hi"})", {"", "messages", "expected an array"});
}

TEST(ParseChatCall, MessagesNameTheirFaults) {
  const Fault faults[] = {
      {R"(["hi"])", "messages[0]", "got \"hi\"; expected an object"},
      {R"([{"content":"x"}])", "messages[0].role", "is missing"},
      {R"([{"role":5,"content":"x"}])", "messages[0].role", "got 5"},
      {R"([{"role":"user"}])", "messages[0].content", "is missing"},
      {R"([{"role":"user","content":null}])", "messages[0].content", "is null"},
      {R"([{"role":"assistant","content":null,"tool_calls":[]}])", "messages[0].content",
       "is null"},
      {R"([{"role":"user","content":7}])", "messages[0].content", "got 7"},
      {R"([{"role":"user","content":[]}])", "messages[0].content", "empty array"},
      {R"([{"role":"user","content":["x"]}])", "messages[0].content[0]", "got \"x\""},
      {R"([{"role":"user","content":[{"text":"x"}]}])", "messages[0].content[0].type",
       "is missing"},
      {R"([{"role":"user","content":"a"},{"role":"user","content":[{"type":"text","text":"x"},
       {"type":"image_url","image_url":{}}]}])",
       "messages[1].content[1].type", "got \"image_url\"", true},
      {R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text",
       "is missing"},
      {R"([{"role":"assistant","tool_calls":{}}])", "messages[0].tool_calls", "array of calls"},
      {R"([{"role":"assistant","tool_calls":[{"function":{}}]}])",
       "messages[0].tool_calls[0].function.name", "is missing"},
      {R"([{"role":"assistant","tool_calls":[{"type":"custom"}]}])",
       "messages[0].tool_calls[0].type", "\"custom\"", true},
      {R"([{"role":"assistant","content":"x","function_call":{}}])", "messages[0].function_call",
       "use tool_calls", true},
      {R"([{"role":"assistant","content":"x","audio":{}}])", "messages[0].audio", "text", true},
      {R"([{"role":"assistant","content":"x","refusal":"no"}])", "messages[0].refusal", "content",
       true},
  };
  for (const Fault& fault : faults) expect_fault(chat("", fault.fields), fault);
}

TEST(ParseChatCall, MessagesReachTheTemplateAsTheyAre) {
  const auto messages = [](std::string_view text) {
    return json_of(parsed(chat("", text)).chat.messages);
  };
  EXPECT_EQ(messages(R"([{"content":"a\nb","role":"system","name":"n","plan":{"z":1,"a":2}}])"),
            R"([{"content":"a\nb","role":"system","name":"n","plan":{"z":1,"a":2}}])");
  EXPECT_EQ(messages(R"([{"role":"user","content":[{"type":"text","text":"a\""},
                        {"type":"text","text":"b"}]}])"),
            R"([{"role":"user","content":[{"type":"text","text":"a\""},)"
            R"({"type":"text","text":"b"}]}])");
  // The official client sends an answer back like this.
  EXPECT_EQ(messages(R"([{"role":"assistant","content":"x","refusal":null,"annotations":[],
                        "audio":null,"function_call":null,"tool_calls":null}])"),
            R"([{"role":"assistant","content":"x"}])");
  EXPECT_EQ(messages(R"([{"role":"assistant","content":null,"tool_calls":[{"id":"1",
                        "type":"function","function":{"name":"f","arguments":"{}"}}]},
                        {"role":"tool","tool_call_id":"1","content":"7"}])"),
            R"([{"role":"assistant","content":null,"tool_calls":[{"id":"1",)"
            R"("type":"function","function":{"name":"f","arguments":"{}"}}]},)"
            R"({"role":"tool","tool_call_id":"1","content":"7"}])");
  EXPECT_EQ(messages(R"([{"role":"user","content":"a","content":"b"}])"),
            R"([{"role":"user","content":"b"}])");
}

TEST(ParseChatCall, ToolsAreHiddenWhenNoneMayBeCalled) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}}])";
  EXPECT_FALSE(parsed(chat(tools)).chat.tools.is_null());
  EXPECT_TRUE(parsed(chat(tools + R"(,"tool_choice":"none")")).chat.tools.is_null());
  EXPECT_TRUE(parsed(chat(R"("tools":[])")).chat.tools.is_null());
}

TEST(ParseChatCall, CallsMayBeForced) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}}])";
  EXPECT_EQ(parsed(chat(tools)).tool_choice, ToolChoice{});
  EXPECT_EQ(
      parsed(chat(tools + R"(,"tool_choice":"required","parallel_tool_calls":false)")).tool_choice,
      (ToolChoice{true, "", false}));
  EXPECT_EQ(parsed(chat(tools + R"(,"tool_choice":"any")")).tool_choice,
            (ToolChoice{true, "", true}));
  EXPECT_EQ(parsed(chat(tools + R"(,"tool_choice":{"type":"function","function":{"name":"f"}})"))
                .tool_choice,
            (ToolChoice{true, "f", true}));
  const std::pair<std::string, const char*> faults[] = {
      {R"("tool_choice":"required")", "there are no tools"},
      {tools + R"(,"tool_choice":{"type":"function","function":{"name":"g"}})", "not among tools"},
  };
  for (const auto& [fields, message] : faults) {
    const auto refused = parse_chat_call(chat(fields));
    ASSERT_FALSE(refused) << fields;
    EXPECT_EQ(refused.error().param, "tool_choice");
    EXPECT_NE(refused.error().message.find(message), std::string::npos) << refused.error().message;
  }
}

TEST(ParseChatCall, ReasoningEffortReachesTheTemplate) {
  EXPECT_EQ(json_of(parsed(chat(R"("reasoning_effort":"low")")).chat.variables),
            R"({"reasoning_effort":"low","enable_thinking":true})");
  EXPECT_EQ(json_of(parsed(chat(R"("reasoning_effort":"none","chat_template_kwargs":{"a":1})"))
                        .chat.variables),
            R"({"a":1,"reasoning_effort":"none","enable_thinking":false})");
  EXPECT_EQ(json_of(parsed(chat(R"("reasoning_effort":"none","chat_template_kwargs":
                {"enable_thinking":true})"))
                        .chat.variables),
            R"({"enable_thinking":true,"reasoning_effort":"none"})");
}

TEST(ParseChatCall, ContinuingTheLastMessageNeedsNoSecondFlag) {
  const GenerationCall call = parsed(chat(R"("continue_final_message":true)"));
  EXPECT_TRUE(call.chat.continue_final_message);
  EXPECT_FALSE(call.chat.add_generation_prompt);
}

TEST(ParseChatCall, BothNamesOfTheLengthMayAgree) {
  EXPECT_EQ(parsed(chat(R"("max_tokens":9,"max_completion_tokens":9)")).sampling.max_tokens, 9);
  EXPECT_EQ(parsed(chat(R"("max_tokens":9)")).sampling.max_tokens, 9);
  // No limit of the call: any number of tokens may be asked for before the end.
  EXPECT_EQ(parsed(chat(R"("min_tokens":100)")).sampling.min_tokens, 100);
}

TEST(ParseChatCall, TheUserIsKnownByEitherName) {
  EXPECT_EQ(parsed(chat(R"("safety_identifier":"s")")).user, "s");
  EXPECT_EQ(parsed(chat(R"("safety_identifier":"s","user":"u")")).user, "u");
}

TEST(ParseChatCall, LogprobsWithoutAlternatives) {
  EXPECT_EQ(parsed(chat(R"("logprobs":true)")).sampling.logprobs, 0);
  EXPECT_EQ(parsed(chat(R"("logprobs":false)")).sampling.logprobs, -1);
}

}  // namespace
}  // namespace sluice
