// The readers and writers of /v1/messages and /v1/responses.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/answer_writer.h"
#include "server/generation_call.h"
#include "server/request_json.h"

namespace sluice {
namespace {

std::string text_of_tree(const JsonValue& value) {
  std::string text;
  append_json(value, text);
  return text;
}

ApiResult<GenerationCall> messages_call(const std::string& fields) {
  return parse_messages_call(R"({"model":"m","max_tokens":9,)" + fields + "}",
                             UnknownFields::kRefuse);
}

ApiResult<GenerationCall> responses_call(const std::string& fields) {
  return parse_responses_call(R"({"model":"m",)" + fields + "}", UnknownFields::kRefuse);
}

TEST(MessagesCall, BlocksBecomeMessagesOfAChat) {
  const auto call = messages_call(R"("system":[{"type":"text","text":"S","cache_control":{}}],
    "stop_sequences":["x"],"metadata":{"user_id":"u"},"thinking":{"type":"disabled"},"messages":[
      {"role":"user","content":"a"},
      {"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":""},
        {"type":"text","text":"b"},{"type":"tool_use","id":"1","name":"f","input":{"z":1}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"r"},
        {"type":"text","text":"c"},{"type":"text","text":"d"}]}])");
  ASSERT_TRUE(call) << call.error().message;
  EXPECT_EQ(text_of_tree(call->chat.messages),
            R"([{"role":"system","content":"S"},{"role":"user","content":"a"},)"
            R"({"role":"assistant","content":"b","reasoning_content":"t","tool_calls":[)"
            R"({"id":"1","type":"function","function":{"name":"f","arguments":"{\"z\":1}"}}]},)"
            R"({"role":"tool","tool_call_id":"1","content":"r"},)"
            R"({"role":"user","content":[{"type":"text","text":"c"},)"
            R"({"type":"text","text":"d"}]}])");
  EXPECT_EQ(text_of_tree(call->chat.variables), R"({"enable_thinking":false})");
  EXPECT_EQ(call->sampling.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(call->user, "u");
  EXPECT_TRUE(call->chat.add_generation_prompt);
  const auto prefilled = messages_call(
      R"("messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}])");
  ASSERT_TRUE(prefilled);
  EXPECT_TRUE(prefilled->chat.continue_final_message);
}

TEST(MessagesCall, TurnsOfOneRoleInARowAreOne) {
  const auto call = messages_call(R"("messages":[
      {"role":"user","content":"a"},{"role":"user","content":[{"type":"text","text":"b"}]},
      {"role":"assistant","content":"c"},{"role":"assistant","content":"d"},
      {"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"r"}]},
      {"role":"user","content":"e"}])");
  ASSERT_TRUE(call) << call.error().message;
  EXPECT_EQ(text_of_tree(call->chat.messages),
            R"([{"role":"user","content":[{"type":"text","text":"a"},)"
            R"({"type":"text","text":"b"}]},)"
            R"({"role":"assistant","content":[{"type":"text","text":"c"},)"
            R"({"type":"text","text":"d"}]},)"
            R"({"role":"assistant","tool_calls":[)"
            R"({"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},)"
            R"({"role":"tool","tool_call_id":"1","content":"r"},)"
            R"({"role":"user","content":"e"}])");
}

TEST(MessagesCall, ToolsAreFunctions) {
  const std::string tools = R"("messages":[{"role":"user","content":"a"}],)"
                            R"("tools":[{"name":"f","description":"d","input_schema":{"a":1}}])";
  const auto call = messages_call(
      tools + R"(,"tool_choice":{"type":"tool","name":"f","disable_parallel_tool_use":true})");
  ASSERT_TRUE(call) << call.error().message;
  EXPECT_EQ(text_of_tree(call->chat.tools),
            R"([{"type":"function","function":{"name":"f","description":"d",)"
            R"("parameters":{"a":1}}}])");
  EXPECT_EQ(call->tool_choice, (ToolChoice{true, "f", false}));
  const auto none = messages_call(tools + R"(,"tool_choice":{"type":"none"})");
  ASSERT_TRUE(none);
  EXPECT_TRUE(none->chat.tools.is_null());
}

TEST(MessagesCall, MistakesAreNamed) {
  const std::string chat = R"("messages":[{"role":"user","content":"a"}])";
  const std::pair<std::string, const char*> faults[] = {
      {R"("messages":[])", "messages"},
      {R"("messages":[{"role":"tool","content":"a"}])", "messages[0].role"},
      {R"("messages":[{"role":"user","content":5}])", "messages[0].content"},
      {R"("messages":[{"role":"user","content":[{"type":"image"}]}])",
       "messages[0].content[0].type"},
      {R"("messages":[{"role":"user","content":[{"type":"tool_use"}]}])",
       "messages[0].content[0].type"},
      {R"("messages":[{"role":"assistant","content":[{"type":"tool_use"}]}])",
       "messages[0].content[0]"},
      {chat + R"(,"tools":[{"type":"web_search_20250305"}])", "tools[0].type"},
      {chat + R"(,"tool_choice":{"type":"any"})", "tool_choice"},
      {chat + R"(,"stop_sequences":[""])", "stop_sequences[0]"},
      {chat + R"(,"system":7)", "system"},
      {chat + R"(,"temperature":-1)", "temperature"},
      {chat + R"(,"unknown":1)", "unknown"},
  };
  for (const auto& [fields, param] : faults) {
    const auto refused = messages_call(fields);
    ASSERT_FALSE(refused) << fields;
    EXPECT_EQ(refused.error().param, param) << refused.error().message;
  }
  const auto unlimited =
      parse_messages_call(R"({"model":"m",)" + chat + "}", UnknownFields::kRefuse);
  ASSERT_FALSE(unlimited);
  EXPECT_EQ(unlimited.error().param, "max_tokens");
}

TEST(ResponsesCall, ItemsBecomeMessagesOfAChat) {
  const auto good = responses_call(R"("instructions":"S","max_output_tokens":5,"input":[
      {"role":"user","content":[{"type":"input_text","text":"a"}]},
      {"type":"reasoning","id":"r","summary":[]},
      {"type":"message","role":"assistant","content":"b"},
      {"type":"function_call","call_id":"1","name":"f","arguments":"{}"},
      {"type":"function_call_output","call_id":"1","output":"o"}],
      "tools":[{"type":"function","name":"f","parameters":null,"strict":true}],
      "tool_choice":{"type":"function","name":"f"},"store":false)");
  ASSERT_TRUE(good) << good.error().message;
  EXPECT_EQ(text_of_tree(good->chat.messages),
            R"([{"role":"system","content":"S"},{"role":"user","content":"a"},)"
            R"({"role":"assistant","content":"b","tool_calls":[{"id":"1","type":"function",)"
            R"("function":{"name":"f","arguments":"{}"}}]},)"
            R"({"role":"tool","tool_call_id":"1","content":"o"}])");
  EXPECT_EQ(text_of_tree(good->chat.tools),
            R"([{"type":"function","function":{"name":"f","strict":true}}])");
  EXPECT_EQ(good->tool_choice, (ToolChoice{true, "f", true}));
  EXPECT_TRUE(parse_bounded_json("{" + good->repeated_json + "}"));
}

TEST(ResponsesCall, MistakesAreNamed) {
  const std::string input = R"("input":"a")";
  const std::pair<std::string, const char*> faults[] = {
      {R"("instructions":"S")", "input"},
      {R"("input":[])", "input"},
      {R"("input":[{"type":"reasoning"}])", "input"},
      {R"("input":[{"type":"item_reference","id":"1"}])", "input[0].type"},
      {R"("input":[{"role":"user","content":[{"type":"input_image"}]}])", "input[0].content[0]"},
      {input + R"(,"previous_response_id":"r")", "previous_response_id"},
      {input + R"(,"store":true)", "store"},
      {input + R"(,"background":true)", "background"},
      {input + R"(,"conversation":"c")", "conversation"},
      {input + R"(,"tools":[{"type":"web_search"}])", "tools[0].type"},
      {input + R"(,"tool_choice":"required")", "tool_choice"},
      {input + R"(,"text":{"format":{"type":"xml"}})", "text.format"},
      {input + R"(,"include":["web_search_call.results"])", "include"},
      {input + R"(,"truncation":"left")", "truncation"},
  };
  for (const auto& [fields, param] : faults) {
    const auto refused = responses_call(fields);
    ASSERT_FALSE(refused) << fields;
    EXPECT_EQ(refused.error().param, param) << refused.error().message;
  }
}

TEST(ResponsesCall, MayCutTheBeginningOfItsInput) {
  for (const char* const whole : {"", R"(,"truncation":null)", R"(,"truncation":"disabled")"}) {
    const auto call = responses_call(R"("input":"x")" + std::string(whole));
    ASSERT_TRUE(call) << call.error().message;
    EXPECT_EQ(call->truncate_prompt_tokens, std::nullopt);
  }
  const auto cut = responses_call(R"("input":"x","truncation":"auto")");
  ASSERT_TRUE(cut) << cut.error().message;
  EXPECT_EQ(cut->truncate_prompt_tokens, -1);
  EXPECT_EQ(cut->truncation_side, TruncationSide::kLeft);
}

TEST(ResponsesCall, MayKeepItsKvInMemory) {
  const auto plain = responses_call(R"("input":"x")");
  ASSERT_TRUE(plain);
  EXPECT_FALSE(plain->kv_memory_only);
  const auto kept = responses_call(R"("input":"x","prompt_cache_retention":"in_memory")");
  ASSERT_TRUE(kept);
  EXPECT_TRUE(kept->kv_memory_only);
  EXPECT_FALSE(responses_call(R"("input":"x","prompt_cache_retention":"disk")"));
}

AnswerHead head_of(Dialect dialect) {
  AnswerHead head;
  head.dialect = dialect;
  head.id = "x_1";
  head.model = "m";
  head.repeated_json = R"("tools":[])";
  return head;
}

// Reasoning, text and a call, in pieces.
std::string stream_of(Dialect dialect, FinishReason reason) {
  const auto writer = make_answer_writer(head_of(dialect), false);
  std::string out;
  const Usage usage{10, 3, 4};
  ChunkPart part;
  part.reasoning = "why";
  writer->append_chunk(part, usage, out);
  part.reasoning = {};
  for (const char* text : {"te", "xt"}) {
    part.text = text;
    writer->append_chunk(part, usage, out);
  }
  part.text = {};
  const ToolCallAnswer call{0, "call_1", "f", R"({"a":"\n"})"};
  part.tool_calls = {&call, 1};
  part.finish_reason = reason;
  part.called_tools = true;
  writer->append_chunk(part, usage, out);
  writer->append_end(usage, out);
  return out;
}

// The data of each event is JSON, whose type is the event's.
std::string types_in(std::string_view stream) {
  std::string types;
  while (!stream.empty()) {
    const std::size_t line = stream.find('\n');
    const std::size_t end = stream.find("\n\n");
    const std::string type(stream.substr(7, line - 7));
    const auto data = parse_bounded_json(stream.substr(line + 7, end - line - 7));
    EXPECT_TRUE(data) << stream.substr(0, end);
    EXPECT_EQ(data ? *find_member(*data->object(), "type")->string() : "", type);
    types += type + " ";
    stream.remove_prefix(end + 2);
  }
  return types;
}

TEST(AnswerWriter, MessagesHaveABlockForEachPart) {
  EXPECT_EQ(types_in(stream_of(Dialect::kMessages, FinishReason::kStop)),
            "message_start content_block_start content_block_delta content_block_stop "
            "content_block_start content_block_delta content_block_delta content_block_stop "
            "content_block_start content_block_delta content_block_stop message_delta "
            "message_stop ");
  const std::string cut = stream_of(Dialect::kMessages, FinishReason::kLength);
  EXPECT_NE(cut.find(R"("stop_reason":"max_tokens","stop_sequence":null)"), std::string::npos);
  EXPECT_NE(cut.find(R"("input_tokens":6,"cache_creation_input_tokens":0,)"
                     R"("cache_read_input_tokens":4,"output_tokens":3)"),
            std::string::npos);
}

TEST(AnswerWriter, ResponsesHaveAnItemForEachPart) {
  const std::string item = "response.output_item.";
  EXPECT_EQ(types_in(stream_of(Dialect::kResponses, FinishReason::kStop)),
            "response.created response.in_progress " + item +
                "added response.reasoning_text.delta response.reasoning_text.done " + item +
                "done " + item +
                "added response.content_part.added response.output_text.delta "
                "response.output_text.delta response.output_text.done response.content_part.done " +
                item + "done " + item +
                "added response.function_call_arguments.delta "
                "response.function_call_arguments.done " +
                item + "done response.completed ");
  EXPECT_NE(stream_of(Dialect::kResponses, FinishReason::kLength)
                .find(R"("incomplete_details":{"reason":"max_output_tokens"})"),
            std::string::npos);
}

TEST(AnswerWriter, WholeAnswersAreJson) {
  ChoiceAnswer choice;
  choice.text = "a \"b\"";
  choice.reasoning = "why";
  choice.stop_reason = "x";
  const ChoiceAnswer choices[] = {choice};
  for (const Dialect dialect : {Dialect::kMessages, Dialect::kResponses}) {
    EXPECT_TRUE(parse_bounded_json(whole_answer_json(head_of(dialect), choices, {})));
  }
  EXPECT_NE(whole_answer_json(head_of(Dialect::kMessages), choices, {})
                .find(R"("stop_reason":"stop_sequence","stop_sequence":"x")"),
            std::string::npos);
}

// Arguments that the limit of tokens cut are no JSON.
TEST(AnswerWriter, CutCallsAreIncomplete) {
  const ToolCallAnswer call{0, "call_1", "f", R"({"a": )", /*cut=*/true};
  ChoiceAnswer choice;
  choice.tool_calls = {call};
  choice.finish_reason = FinishReason::kLength;
  const ChoiceAnswer choices[] = {choice};
  const std::string message = whole_answer_json(head_of(Dialect::kMessages), choices, {});
  EXPECT_TRUE(parse_bounded_json(message)) << message;
  EXPECT_NE(message.find(R"("name":"f","input":{})"), std::string::npos) << message;
  const std::string response = whole_answer_json(head_of(Dialect::kResponses), choices, {});
  EXPECT_TRUE(parse_bounded_json(response)) << response;
  EXPECT_NE(response.find(R"("type":"function_call","status":"incomplete")"), std::string::npos)
      << response;
}

TEST(AnswerWriter, ErrorsHaveTheDialectsShape) {
  ApiError error;
  error.status = 429;
  error.message = "slow down";
  EXPECT_EQ(to_json(error, Dialect::kMessages),
            R"({"type":"error","error":{"type":"rate_limit_error","message":"slow down"}})");
  std::string out;
  make_answer_writer(head_of(Dialect::kResponses), false)->append_error(error, out);
  EXPECT_EQ(types_in(out), "error ");
}

}  // namespace
}  // namespace sluice
