#include "server/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "base/json.h"
#include "tests/support/demo_model.h"
#include "tests/support/fake_engine_loop.h"
#include "tests/support/fake_exchange.h"

namespace sluice {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using test::FakeExchange;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr RequestId kFirstId = 100;
constexpr TimePoint kReceived{milliseconds(1000)};

const ServedModel& demo_model() {
  static const ServedModel model = test::load_demo_model(256);
  return model;
}

// The same model with a template that reads tools, and answers as those of Qwen 3.
const ServedModel& tool_model() {
  static const ServedModel model = [] {
    namespace fs = std::filesystem;
    const fs::path directory =
        fs::path(testing::TempDir()) / ("generation_test_tools_" + std::to_string(getpid()));
    fs::create_directories(directory);
    std::ofstream(directory / "chat_template.jinja")
        << "{{ tools }}{% for m in messages %}{{ m.content }}{% endfor %}";
    ServedModel with_tools = test::load_demo_model(256);
    with_tools.templates = *ChatTemplates::load(directory.string());
    with_tools.tool_format = find_tool_format("hermes");
    with_tools.reasoning_format = find_reasoning_format("qwen3");
    fs::remove_all(directory);
    return with_tools;
  }();
  return model;
}

std::vector<TokenId> tokens_of(std::string_view text) {
  auto ids = demo_model().tokenizer.encode(text, {AddSpecialTokens::kNo});
  CHECK(ids.has_value());
  return *ids;
}

class GenerationTest : public testing::Test {
 protected:
  GenerationTest() { clock_.advance(kReceived.since_start); }

  // `resumed`: tokens of an earlier server.
  void start(std::string_view body, ApiKind kind = ApiKind::kCompletion,
             std::vector<TokenId> resumed = {}) {
    auto call = kind == ApiKind::kChat ? parse_chat_call(body) : parse_completion_call(body);
    ASSERT_TRUE(call) << call.error().message;
    PromptWorker worker(tool_format_ == nullptr ? demo_model() : tool_model());
    auto prepared = prepare_generation(worker, *std::move(call), "");
    ASSERT_TRUE(prepared) << prepared.error().message;
    if (!resumed.empty()) prepared->resume.emplace();
    prepared->resumed = std::move(resumed);
    http::Request request;
    request.received = kReceived;
    exchange_ = std::make_shared<FakeExchange>(std::move(request));
    AccessRecord record;
    record.request_id = "req-1";
    AnswerHead head{kind, "cmpl-1", 7, "demo", ""};
    generation_ = std::make_unique<Generation>(exchange_, *std::move(prepared), head, context_,
                                               kFirstId, record);
  }

  // One event of a step of its own.
  TokenTiming give(std::size_t prompt, std::int32_t choice, const std::vector<TokenId>& tokens,
                   FinishReason reason = FinishReason::kNone, bool flush = true) {
    clock_.advance(milliseconds(10));
    OutputEvent event;
    event.request = kFirstId + prompt;
    event.choice = choice;
    event.finish_reason = reason;
    event.cached_prompt_tokens = choice == 0 ? 3 : 40;  // forks find choice 0's blocks
    event.num_tokens = static_cast<std::uint32_t>(tokens.size());
    event.time = clock_.now();
    std::vector<TokenLogprob> logprobs;
    for (const TokenId token : tokens) {
      logprobs.push_back({token, -0.5F});
      logprobs.push_back({token, -0.5F});
      logprobs.push_back({1, -2.0F});
    }
    const TokenTiming timing = generation_->take(event, tokens, logprobs);
    if (flush) generation_->flush();
    return timing;
  }

  // A choice's tokens, one per step, and its end with the last.
  void give_text(std::string_view text, std::int32_t choice = 0, std::size_t prompt = 0,
                 FinishReason end = FinishReason::kLength) {
    auto tokens = tokens_of(text);
    if (end == FinishReason::kStop) tokens.push_back(5);  // the stop token is no text
    for (std::size_t i = 0; i < tokens.size() && !generation_->finished(); ++i) {
      give(prompt, choice, {tokens[i]}, i + 1 == tokens.size() ? end : FinishReason::kNone);
    }
  }

  // The JSON of each event; "[DONE]" as a string.
  std::vector<json> events() const {
    std::vector<json> found;
    std::string_view rest = exchange_->body;
    while (!rest.empty()) {
      const std::size_t end = rest.find("\n\n");
      CHECK(end != std::string_view::npos && rest.starts_with("data: "));
      const std::string_view data = rest.substr(6, end - 6);
      found.push_back(data == "[DONE]" ? json("[DONE]") : parse_json(data));
      rest.remove_prefix(end + 2);
    }
    return found;
  }

  std::string streamed_text(std::int32_t choice = 0) const {
    std::string text;
    for (const json& event : events()) {
      if (!event.is_object() || !event.contains("choices")) continue;
      for (const json& part : event["choices"]) {
        if (part["index"] == choice) text += part["text"].get<std::string>();
      }
    }
    return text;
  }

  json answer() const { return parse_json(exchange_->body); }

  const ToolFormat* tool_format_ = nullptr;  // of the model; nullptr: it has none
  test::FakeEngineLoop engine_;
  std::shared_ptr<FakeExchange> exchange_;
  std::unique_ptr<Generation> generation_;
  ManualClock clock_;
  ServerMetrics metrics_{{}};
  GenerationContext context_{demo_model().tokenizer, engine_, clock_, metrics_};
};

TEST_F(GenerationTest, AWholeAnswerComesOnceAtTheEnd) {
  start(R"({"model":"demo","prompt":"One day"})");
  give_text(" a boat went out.");
  ASSERT_TRUE(generation_->finished());
  EXPECT_EQ(exchange_->head->status, 200);
  const json object = answer();
  EXPECT_EQ(object["choices"][0]["text"], " a boat went out.");
  EXPECT_EQ(object["choices"][0]["finish_reason"], "length");
  const auto prompt = static_cast<std::int64_t>(demo_model().tokenizer.encode("One day")->size());
  const auto output = static_cast<std::int64_t>(tokens_of(" a boat went out.").size());
  EXPECT_EQ(object["usage"]["prompt_tokens"], prompt);
  EXPECT_EQ(object["usage"]["completion_tokens"], output);
  EXPECT_EQ(object["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
  const AccessRecord& record = generation_->record();
  EXPECT_EQ(record.prompt_tokens, prompt);
  EXPECT_EQ(record.completion_tokens, output);
  EXPECT_EQ(record.cached_tokens, 3);
  EXPECT_EQ(record.ttft, milliseconds(10));
  EXPECT_EQ(record.total, milliseconds(10 * output));
  EXPECT_EQ(record.finish_reason, "length");
  EXPECT_THAT(engine_.cancelled, IsEmpty());
}

TEST_F(GenerationTest, AStreamBeginsWithTheFirstTokenAndEndsWithDone) {
  start(R"({"model":"demo","prompt":"One day","stream":true,
            "stream_options":{"include_usage":true}})");
  EXPECT_FALSE(exchange_->head);
  give_text(" a boat went out.");
  EXPECT_EQ(exchange_->head->content_type, "text/event-stream; charset=utf-8");
  EXPECT_TRUE(exchange_->ended);
  EXPECT_EQ(streamed_text(), " a boat went out.");
  const auto all = events();
  EXPECT_EQ(all.back(), "[DONE]");
  const json& usage = all[all.size() - 2];
  EXPECT_THAT(usage["choices"], IsEmpty());
  EXPECT_EQ(usage["usage"]["completion_tokens"], tokens_of(" a boat went out.").size());
  EXPECT_EQ(all[all.size() - 3]["choices"][0]["finish_reason"], "length");
}

TEST_F(GenerationTest, ASilentStreamGetsComments) {
  start(R"({"model":"demo","prompt":"One day","stream":true})");
  const Duration silence = std::chrono::seconds(15);
  generation_->keep_alive(clock_.now(), silence);
  EXPECT_FALSE(exchange_->head) << "not silent for long";
  clock_.advance(silence);
  generation_->keep_alive(clock_.now(), silence);
  EXPECT_EQ(exchange_->head->status, 200);
  EXPECT_EQ(exchange_->body, ": keep-alive\n\n");
  generation_->keep_alive(clock_.now(), silence);
  EXPECT_EQ(exchange_->writes, 1) << "the comment broke the silence";
  exchange_->body.clear();
  give_text(" a boat");
  EXPECT_EQ(streamed_text(), " a boat");
  EXPECT_TRUE(exchange_->ended);
}

TEST_F(GenerationTest, AnErrorBehindACommentIsAnEvent) {
  start(R"({"model":"demo","prompt":"One day","stream":true})");
  clock_.advance(std::chrono::seconds(15));
  generation_->keep_alive(clock_.now(), std::chrono::seconds(15));
  exchange_->body.clear();
  generation_->fail(to_api_error(unavailable("the engine has failed: oops")));
  EXPECT_EQ(events().back()["error"]["message"], "the engine has failed: oops");
}

TEST_F(GenerationTest, NoCommentsForWholeAnswersAndForClientsThatDoNotRead) {
  start(R"({"model":"demo","prompt":"One day"})");
  clock_.advance(std::chrono::hours(1));
  generation_->keep_alive(clock_.now(), std::chrono::seconds(15));
  EXPECT_FALSE(exchange_->head);
  start(R"({"model":"demo","prompt":"One day","stream":true})");
  give(0, 0, {tokens_of(" a boat")[0]});
  exchange_->reads = false;
  clock_.advance(std::chrono::hours(1));
  const int writes = exchange_->writes;
  generation_->keep_alive(clock_.now(), std::chrono::seconds(15));
  EXPECT_EQ(exchange_->writes, writes);
}

TEST_F(GenerationTest, OneWritePerStep) {
  start(R"({"model":"demo","prompt":"One day","stream":true,"n":3})");
  const auto tokens = tokens_of(" a boat");
  for (std::int32_t choice = 0; choice < 3; ++choice) {
    give(0, choice, {tokens[0]}, FinishReason::kNone, /*flush=*/false);
  }
  EXPECT_EQ(exchange_->writes, 0);
  generation_->flush();
  EXPECT_EQ(exchange_->writes, 1);
  EXPECT_EQ(events().size(), 3U);
}

TEST_F(GenerationTest, AStopStringAcrossTokensEndsTheChoiceAndIsLeftOut) {
  start(R"({"model":"demo","prompt":"One day","stream":true,"stop":["boat went"]})");
  give_text(" a boat went out to the sea.");
  ASSERT_TRUE(generation_->finished());
  EXPECT_EQ(streamed_text(), " a ");
  EXPECT_THAT(engine_.ended, ElementsAre(std::pair<RequestId, std::int32_t>(kFirstId, 0)));
  const auto all = events();
  EXPECT_EQ(all[all.size() - 2]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(all[all.size() - 2]["choices"][0]["stop_reason"], "boat went");
  // Nothing of what the engine computed meanwhile is counted.
  EXPECT_EQ(generation_->record().completion_tokens,
            static_cast<std::int64_t>(tokens_of(" a boat went").size()));
}

// Wherever the first server stopped: inside a stop string, a character or a tool call.
TEST_F(GenerationTest, AResumedAnswerIsTheSameAsAWholeOne) {
  tool_format_ = find_tool_format("hermes");
  const std::string chat =
      R"("model":"demo","messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function",
         "function":{"name":"f","parameters":{"type":"object"}}}])";
  const std::string call =
      "<think>so</think>Well <tool_call>\n{\"name\": \"f\", \"arguments\": "
      "{}}\n</tool_call>";
  struct Case {
    ApiKind kind;
    std::string body;
    std::string text;
  };
  const Case cases[] = {
      {ApiKind::kCompletion, R"({"model":"demo","prompt":"One day","stop":["boat went"]})",
       " a boat sank, a boat went out"},
      {ApiKind::kCompletion, R"({"model":"demo","prompt":"One day","echo":true,
                               "return_token_ids":true})",
       " a \u00fc\u4e2d\U0001f600 boat"},
      {ApiKind::kChat, "{" + chat + "}", call}};
  const auto without_call_id = [&] {
    json object = answer();
    json& message = object["choices"][0]["message"];
    if (message.contains("tool_calls")) message["tool_calls"][0].erase("id");  // random
    return object;
  };
  for (const Case& one : cases) {
    start(one.body, one.kind);
    give_text(one.text);
    ASSERT_TRUE(generation_->finished());
    const json whole = without_call_id();
    const auto tokens = tokens_of(one.text);
    const auto counted = whole["usage"]["completion_tokens"].get<std::size_t>();
    for (std::size_t said = 1; said < counted; ++said) {
      const auto cut = tokens.begin() + static_cast<std::ptrdiff_t>(said);
      start(one.body, one.kind, {tokens.begin(), cut});
      EXPECT_EQ(generation_->make_request(0, "").resumed, std::vector(tokens.begin(), cut));
      generation_->replay();
      generation_->flush();
      ASSERT_FALSE(generation_->finished());
      EXPECT_EQ(generation_->unfinished_answer()->tokens.size(), said);
      for (std::size_t i = said; i < tokens.size() && !generation_->finished(); ++i) {
        give(0, 0, {tokens[i]},
             i + 1 == tokens.size() ? FinishReason::kLength : FinishReason::kNone);
      }
      ASSERT_TRUE(generation_->finished());
      EXPECT_TRUE(generation_->resumed_is_complete());
      EXPECT_FALSE(generation_->unfinished_answer());
      EXPECT_EQ(without_call_id(), whole) << said;
    }
  }
}

TEST_F(GenerationTest, AResumedStreamBeginsWithAllThatWasSaid) {
  const auto tokens = tokens_of(" a boat went out");
  start(R"({"model":"demo","prompt":"One day","stream":true,
            "stream_options":{"include_usage":true,"continuous_usage_stats":true}})",
        ApiKind::kCompletion, {tokens.begin(), tokens.begin() + 3});
  generation_->replay();
  generation_->flush();
  ASSERT_EQ(events().size(), 1U);
  EXPECT_EQ(events()[0]["usage"]["completion_tokens"], 3);
  for (std::size_t i = 3; i < tokens.size(); ++i) {
    give(0, 0, {tokens[i]}, i + 1 == tokens.size() ? FinishReason::kLength : FinishReason::kNone);
  }
  EXPECT_EQ(streamed_text(), " a boat went out");
  const auto all = events();
  EXPECT_EQ(all[all.size() - 2]["usage"]["completion_tokens"], tokens.size());
}

TEST_F(GenerationTest, OneChoiceStopsWhileTheOthersGoOn) {
  start(R"({"model":"demo","prompt":"One day","n":2,"stop":["boat"]})");
  for (const TokenId token : tokens_of(" a boat")) give(0, 0, {token});
  EXPECT_FALSE(generation_->finished());
  EXPECT_THAT(engine_.ended, ElementsAre(std::pair<RequestId, std::int32_t>(kFirstId, 0)));
  // Computed before the engine knew.
  give(0, 0, tokens_of(" sank"));
  give(0, 0, {}, FinishReason::kStop);
  give_text(" fish swam", 1);
  ASSERT_TRUE(generation_->finished());
  const json object = answer();
  EXPECT_EQ(object["choices"][0]["text"], " a ");
  EXPECT_EQ(object["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(object["choices"][1]["text"], " fish swam");
  EXPECT_EQ(object["choices"][1]["finish_reason"], "length");
}

TEST_F(GenerationTest, SeveralPromptsAreOneAnswer) {
  start(R"({"model":"demo","prompt":["One day","The sea"],"n":2,"echo":true})");
  ASSERT_EQ(generation_->num_prompts(), 2U);
  EXPECT_EQ(generation_->make_request(1, "alice").id, kFirstId + 1);
  give_text(" d", 1, 1);
  give_text(" c", 0, 1);
  give_text(" a", 0, 0);
  EXPECT_FALSE(exchange_->head);
  give_text(" b", 1, 0);
  const json object = answer();
  std::vector<std::string> texts;
  for (const json& choice : object["choices"]) texts.push_back(choice["text"]);
  EXPECT_THAT(texts, ElementsAre("One day a", "One day b", "The sea c", "The sea d"));
  EXPECT_EQ(object["usage"]["prompt_tokens_details"]["cached_tokens"], 6);
}

TEST_F(GenerationTest, LogprobsHaveOffsetsBehindTheEcho) {
  start(R"({"model":"demo","prompt":"One day","logprobs":2})");
  give_text(" a boat");
  const json logprobs = answer()["choices"][0]["logprobs"];
  const auto tokens = tokens_of(" a boat");
  EXPECT_EQ(logprobs["tokens"].size(), tokens.size());
  EXPECT_EQ(logprobs["token_logprobs"][0], -0.5);
  EXPECT_EQ(logprobs["text_offset"][0], 0);
  ASSERT_GT(tokens.size(), 1U);
  EXPECT_GT(logprobs["text_offset"][1], 0);
}

// Scores of `count` prompt tokens with two alternatives each, as the engine reports them.
std::vector<PromptLogprob> scores_of(std::span<const TokenId> ids) {
  std::vector<PromptLogprob> scores;
  for (const TokenId id : ids.subspan(1)) {
    scores.push_back({id, -1.5F, 7});
    scores.push_back({70, -0.25F, 1});
    scores.push_back({71, -0.5F, 2});
  }
  return scores;
}

TEST_F(GenerationTest, AnEchoWithLogprobsHasThoseOfThePrompt) {
  start(R"({"model":"demo","prompt":"One day","echo":true,"logprobs":2})");
  const Request request = generation_->make_request(0, "");
  EXPECT_EQ(request.sampling.prompt_logprobs, 2);
  EXPECT_TRUE(request.block_hashes.empty() && !request.block_hash_root);
  const auto scores = scores_of(request.prompt);
  OutputEvent event;
  event.request = kFirstId;
  // The prompt takes two steps.
  generation_->take(event, {}, {}, std::span(scores).first(3));
  generation_->flush();
  EXPECT_FALSE(exchange_->head);
  generation_->take(event, {}, {}, std::span(scores).subspan(3));
  give_text(" a boat");
  const json choice = answer()["choices"][0];
  EXPECT_EQ(choice["text"], "One day a boat");
  const json& logprobs = choice["logprobs"];
  const std::size_t prompt = request.prompt.size();
  ASSERT_EQ(logprobs["tokens"].size(), prompt + tokens_of(" a boat").size());
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  EXPECT_EQ(logprobs["token_logprobs"][1], -1.5);
  EXPECT_EQ(logprobs["top_logprobs"][1].size(), 3U);
  EXPECT_EQ(logprobs["token_logprobs"][prompt], -0.5);
  std::string text;
  for (std::size_t i = 0; i < logprobs["tokens"].size(); ++i) {
    EXPECT_EQ(logprobs["text_offset"][i], text.size()) << i;
    if (i > 0) text += logprobs["tokens"][i].get<std::string>();  // BOS is no text
  }
  EXPECT_EQ(text, "One day a boat");
  EXPECT_FALSE(choice.contains("prompt_logprobs"));
}

TEST_F(GenerationTest, PromptLogprobsHaveVllmsShape) {
  start(R"({"model":"demo","prompt":"One day","prompt_logprobs":2,"n":2,"max_tokens":0})");
  const Request request = generation_->make_request(0, "");
  OutputEvent event;
  event.request = kFirstId;
  event.finish_reason = FinishReason::kLength;
  event.num_tokens = 1;
  const TokenId token = 80;
  generation_->take(event, std::span(&token, 1), {}, scores_of(request.prompt));
  event.choice = 1;
  generation_->take(event, std::span(&token, 1), {});
  generation_->flush();
  ASSERT_TRUE(exchange_->ended);
  EXPECT_EQ(answer()["usage"]["completion_tokens"], 0);
  const json whole = answer();
  for (const json& choice : whole["choices"]) {
    EXPECT_EQ(choice["text"], "");
    EXPECT_EQ(choice["finish_reason"], "length");
    EXPECT_TRUE(choice["logprobs"].is_null());
    const json& prompt = choice["prompt_logprobs"];
    ASSERT_EQ(prompt.size(), request.prompt.size());
    EXPECT_TRUE(prompt[0].is_null());
    const json& own = prompt[1][std::to_string(request.prompt[1])];
    EXPECT_EQ(own["logprob"], -1.5);
    EXPECT_EQ(own["rank"], 7);
    EXPECT_EQ(own["decoded_token"], demo_model().tokenizer.token_bytes(request.prompt[1]));
    EXPECT_EQ(prompt[1]["70"]["rank"], 1);
    EXPECT_EQ(prompt[1].size(), 3U);
  }
}

TEST_F(GenerationTest, AChatHasPromptLogprobsBesideItsChoices) {
  start(R"({"model":"demo","messages":[{"role":"user","content":"hi"}],"prompt_logprobs":2})",
        ApiKind::kChat);
  const Request request = generation_->make_request(0, "");
  OutputEvent event;
  event.request = kFirstId;
  generation_->take(event, {}, {}, scores_of(request.prompt));
  give_text("a boat");
  EXPECT_EQ(answer()["prompt_logprobs"].size(), request.prompt.size());
}

TEST_F(GenerationTest, AStreamEchoesThePromptWithItsLogprobsFirst) {
  start(R"({"model":"demo","prompt":"One day","echo":true,"logprobs":2,"stream":true})");
  const Request request = generation_->make_request(0, "");
  OutputEvent event;
  event.request = kFirstId;
  generation_->take(event, {}, {}, scores_of(request.prompt));
  generation_->flush();
  EXPECT_FALSE(exchange_->head) << "the first chunk comes with the first token";
  give_text(" a boat");
  EXPECT_EQ(streamed_text(), "One day a boat");
  const auto all = events();
  EXPECT_EQ(all[0]["choices"][0]["logprobs"]["tokens"].size(), request.prompt.size() + 1);
  EXPECT_TRUE(all[0]["choices"][0]["logprobs"]["token_logprobs"][0].is_null());
  EXPECT_EQ(all[1]["choices"][0]["logprobs"]["tokens"].size(), 1U);
  EXPECT_FALSE(all[1]["choices"][0]["logprobs"]["token_logprobs"][0].is_null());
}

TEST_F(GenerationTest, TokenIdsWhenAskedFor) {
  start(R"({"model":"demo","prompt":"One day","return_token_ids":true})");
  EXPECT_EQ(generation_->make_request(0, "").prompt, *demo_model().tokenizer.encode("One day"));
  give_text(" a boat");
  const json choice = answer()["choices"][0];
  EXPECT_EQ(choice["token_ids"].get<std::vector<TokenId>>(), tokens_of(" a boat"));
  EXPECT_EQ(choice["prompt_token_ids"].get<std::vector<TokenId>>(),
            *demo_model().tokenizer.encode("One day"));
}

TEST_F(GenerationTest, StreamedTokenIdsDoNotWaitForText) {
  // A token of half a character has no text yet.
  const std::vector<TokenId> tokens = tokens_of(" a \U0001f600 boat");
  for (const char* const logprobs : {"", R"(,"logprobs":1)"}) {
    start(R"({"model":"demo","prompt":"One day","stream":true,"return_token_ids":true)" +
          std::string(logprobs) + "}");
    give_text(" a \U0001f600 boat");
    std::vector<TokenId> streamed;
    int without_text = 0;
    for (const json& event : events()) {
      if (event == "[DONE]") continue;
      const json& choice = event["choices"][0];
      const auto ids = choice["token_ids"].get<std::vector<TokenId>>();
      streamed.insert(streamed.end(), ids.begin(), ids.end());
      EXPECT_LE(ids.size(), 1U);
      without_text += !ids.empty() && choice["text"] == "" ? 1 : 0;
    }
    EXPECT_EQ(streamed, tokens);
    EXPECT_GT(without_text, 0);
    EXPECT_EQ(streamed_text(), " a \U0001f600 boat");
  }
}

TEST_F(GenerationTest, ChatChunksBeginWithTheRole) {
  start(R"({"model":"demo","messages":[{"role":"user","content":"hi"}],"stream":true})",
        ApiKind::kChat);
  give_text(" a boat");
  const auto all = events();
  EXPECT_EQ(all[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_FALSE(all[1]["choices"][0]["delta"].contains("role"));
}

constexpr std::string_view kToolChat =
    R"({"model":"demo","messages":[{"role":"user","content":"hi"}],)"
    R"("tools":[{"type":"function","function":{"name":"f"}}])";
constexpr std::string_view kToolAnswer =
    R"(I look. <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>)"
    R"(<tool_call>{"name": "g", "arguments": {}}</tool_call>)";

TEST_F(GenerationTest, ToolCallsAreReadFromTheText) {
  tool_format_ = find_tool_format("hermes");
  start(std::string(kToolChat) + "}", ApiKind::kChat);
  give_text(kToolAnswer, 0, 0, FinishReason::kStop);
  const json choice = answer()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], "I look.");
  const json& calls = choice["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0]["type"], "function");
  EXPECT_EQ(calls[0]["function"]["name"], "f");
  EXPECT_EQ(calls[0]["function"]["arguments"], R"({"a":1})");
  EXPECT_EQ(calls[1]["function"]["name"], "g");
  EXPECT_NE(calls[0]["id"], calls[1]["id"]);
  EXPECT_FALSE(calls[0].contains("index"));
}

TEST_F(GenerationTest, AnAnswerOfCallsAloneHasNoContent) {
  tool_format_ = find_tool_format("hermes");
  start(std::string(kToolChat) + "}", ApiKind::kChat);
  give_text(R"(<tool_call>{"name": "f"}</tool_call>)");
  EXPECT_TRUE(answer()["choices"][0]["message"]["content"].is_null());
  EXPECT_EQ(answer()["choices"][0]["finish_reason"], "length") << "the limit ended it";
}

// As of OpenAI: the arguments are what the model has written of them.
TEST_F(GenerationTest, ACallThatTheLimitCutsIsACall) {
  tool_format_ = find_tool_format("hermes");
  constexpr std::string_view kCut = R"(<tool_call>{"name": "f", "arguments": {"a": "Ber)";
  constexpr std::string_view kArguments = R"({"a": "Ber)";
  start(std::string(kToolChat) + "}", ApiKind::kChat);
  give_text(kCut);
  const json choice = answer()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_TRUE(choice["message"]["content"].is_null());
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 1U);
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], kArguments);

  start(std::string(kToolChat) + R"(,"stream":true})", ApiKind::kChat);
  give_text(kCut);
  json calls;
  json finish;
  for (const json& event : events()) {
    if (!event.is_object()) continue;
    const json& piece = event["choices"][0];
    if (piece["delta"].contains("tool_calls")) calls = piece["delta"]["tool_calls"];
    if (!piece["finish_reason"].is_null()) finish = piece["finish_reason"];
  }
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0]["function"]["arguments"], kArguments);
  EXPECT_EQ(finish, "length");

  start(std::string(kToolChat) + "}", ApiKind::kChat);
  give_text(kCut, 0, 0, FinishReason::kStop);
  EXPECT_EQ(answer()["choices"][0]["message"]["content"], kCut) << "the model wrote no call";
}

TEST_F(GenerationTest, ToolCallsAreDeltasOfAStream) {
  tool_format_ = find_tool_format("hermes");
  start(std::string(kToolChat) + R"(,"stream":true})", ApiKind::kChat);
  give_text(kToolAnswer, 0, 0, FinishReason::kStop);
  std::string content;
  std::vector<json> calls;
  json finish;
  for (const json& event : events()) {
    if (!event.is_object()) continue;
    const json& choice = event["choices"][0];
    const json& delta = choice["delta"];
    if (delta.contains("content") && delta["content"].is_string()) {
      content += delta["content"].get<std::string>();
    }
    if (delta.contains("tool_calls")) {
      EXPECT_TRUE(finish.is_null());
      calls.insert(calls.end(), delta["tool_calls"].begin(), delta["tool_calls"].end());
    }
    if (!choice["finish_reason"].is_null()) finish = choice["finish_reason"];
  }
  EXPECT_EQ(content, "I look.");
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0]["index"], 0);
  EXPECT_EQ(calls[1]["index"], 1);
  EXPECT_EQ(calls[0]["function"]["arguments"], R"({"a":1})");
  EXPECT_EQ(finish, "tool_calls");
}

TEST_F(GenerationTest, ReasoningIsAPartOfItsOwn) {
  tool_format_ = find_tool_format("hermes");
  start(std::string(kToolChat) + R"(})", ApiKind::kChat);
  const std::string thinking = "<think>I look.</think>";
  give_text(thinking + std::string(kToolAnswer), 0, 0, FinishReason::kStop);
  const json message = answer()["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "I look.");
  EXPECT_EQ(message["content"], "I look.");
  EXPECT_EQ(message["tool_calls"].size(), 2U);
  EXPECT_EQ(answer()["usage"]["completion_tokens_details"]["reasoning_tokens"],
            tokens_of(thinking).size());
}

TEST_F(GenerationTest, ReasoningIsCountedTokenByToken) {
  tool_format_ = find_tool_format("hermes");
  const auto count = [&](const std::vector<TokenId>& tokens) {
    start(R"({"model":"demo","messages":[{"role":"user","content":"hi"}]})", ApiKind::kChat);
    give(0, 0, tokens, FinishReason::kLength);  // all at once
    return answer()["usage"]["completion_tokens_details"]["reasoning_tokens"];
  };
  std::vector<TokenId> tokens = tokens_of("<think>I look.</think>");
  const std::size_t thinking = tokens.size();
  const auto rest = tokens_of(" A boat.");
  tokens.insert(tokens.end(), rest.begin(), rest.end());
  EXPECT_EQ(count(tokens), thinking);
  EXPECT_EQ(count(tokens_of("<think>I look")), tokens_of("<think>I look").size()) << "cut";
  EXPECT_EQ(count(tokens_of("<thank> you")), 0) << "only nearly the marker";
  start(R"({"model":"demo","prompt":"hi"})");
  give_text(" a boat");
  EXPECT_FALSE(answer()["usage"].contains("completion_tokens_details"));
}

TEST_F(GenerationTest, ReasoningIsDeltasOfAStream) {
  tool_format_ = find_tool_format("hermes");
  start(R"({"model":"demo","messages":[{"role":"user","content":"x <think>"}],"stream":true})",
        ApiKind::kChat);
  give_text("I look.</think>Yes.");
  std::string reasoning;
  std::string content;
  for (const json& event : events()) {
    if (!event.is_object()) continue;
    const json& delta = event["choices"][0]["delta"];
    if (delta.contains("reasoning_content")) {
      reasoning += delta["reasoning_content"].get<std::string>();
      EXPECT_EQ(content, "");
    }
    if (delta.contains("content") && delta["content"].is_string()) {
      content += delta["content"].get<std::string>();
    }
  }
  EXPECT_EQ(reasoning, "I look.") << "the prompt ended inside";
  EXPECT_EQ(content, "Yes.");
}

TEST_F(GenerationTest, WithoutToolsNothingIsReadAsACall) {
  tool_format_ = find_tool_format("hermes");
  start(R"({"model":"demo","messages":[{"role":"user","content":"hi"}]})", ApiKind::kChat);
  give_text(kToolAnswer, 0, 0, FinishReason::kStop);
  EXPECT_EQ(answer()["choices"][0]["message"]["content"], kToolAnswer);
  EXPECT_EQ(answer()["choices"][0]["finish_reason"], "stop");
}

TEST_F(GenerationTest, ChatsGetSpecialTokensOnTopOnlyWhenTheyAsk) {
  const std::string chat = R"({"model":"demo","messages":[{"role":"user","content":"hi"}])";
  start(chat + "}", ApiKind::kChat);
  std::vector<TokenId> plain = generation_->make_request(0, "").prompt;
  start(chat + R"(,"add_special_tokens":true})", ApiKind::kChat);
  const Request more = generation_->make_request(0, "");
  plain.insert(plain.begin(), *demo_model().tokenizer.bos_id());
  EXPECT_EQ(more.prompt, plain);
}

TEST_F(GenerationTest, AnErrorBeforeTheFirstTokenHasItsStatus) {
  start(R"({"model":"demo","prompt":"One day","stream":true})");
  generation_->fail(to_api_error(unavailable("the engine has failed: oops")));
  EXPECT_EQ(exchange_->head->status, 503);
  EXPECT_EQ(answer()["error"]["message"], "the engine has failed: oops");
  EXPECT_TRUE(generation_->finished());
  EXPECT_THAT(engine_.cancelled, ElementsAre(kFirstId));
}

TEST_F(GenerationTest, AnErrorInMidStreamIsAnEventAndNoDone) {
  start(R"({"model":"demo","prompt":"One day","stream":true})");
  give(0, 0, {tokens_of(" a boat")[0]});
  generation_->fail(to_api_error(unavailable("the engine has failed: oops")));
  EXPECT_TRUE(exchange_->ended);
  EXPECT_EQ(events().back()["error"]["message"], "the engine has failed: oops");
  EXPECT_EQ(generation_->record().finish_reason, "error");
}

TEST_F(GenerationTest, LogitsThatAreNotFiniteEndTheCallWith500) {
  start(R"({"model":"demo","prompt":["One day","The sea"]})");
  testing::internal::CaptureStderr();
  give(0, 0, {}, FinishReason::kError);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::AllOf(HasSubstr(generation_->record().request_id), HasSubstr("not finite")));
  EXPECT_EQ(exchange_->head->status, 500);
  EXPECT_THAT(answer()["error"]["message"].get<std::string>(), HasSubstr("not finite"));
  EXPECT_THAT(engine_.cancelled, ElementsAre(kFirstId, kFirstId + 1));
}

TEST_F(GenerationTest, AClientThatLeavesCancelsEverything) {
  start(R"({"model":"demo","prompt":["One day","The sea"],"stream":true})");
  give_text(" a", 0, 0);
  generation_->close(http::CloseReason::kPeerGone);
  EXPECT_TRUE(generation_->finished());
  EXPECT_THAT(engine_.cancelled, ElementsAre(kFirstId + 1));  // the first prompt is through
  EXPECT_EQ(generation_->record().close_reason, "peer_gone");
  EXPECT_EQ(generation_->record().status, 200);
  EXPECT_FALSE(exchange_->ended);
}

TEST_F(GenerationTest, AClientThatLeavesBeforeTheFirstTokenIsLoggedAs499) {
  start(R"({"model":"demo","prompt":"One day","stream":true})");
  generation_->close(http::CloseReason::kPeerGone);
  EXPECT_EQ(generation_->record().status, 499);
  EXPECT_FALSE(exchange_->head);
}

TEST_F(GenerationTest, ASlowReaderCostsBoundedMemory) {
  start(R"({"model":"demo","prompt":"One day","stream":true,"max_tokens":100000})");
  exchange_->reads = false;
  const TokenId token = tokens_of(" a")[0];
  int steps = 0;
  while (!generation_->finished() && steps < 1'000'000) {
    give(0, 0, {token});
    ++steps;
  }
  EXPECT_TRUE(exchange_->aborted);
  EXPECT_THAT(engine_.cancelled, ElementsAre(kFirstId));
  EXPECT_EQ(generation_->record().close_reason, "slow_reader");
  EXPECT_EQ(generation_->record().finish_reason, "cancelled");
  EXPECT_GT(exchange_->body.size(), Generation::kMaxUnsentBytes);
  EXPECT_LT(exchange_->body.size(), Generation::kMaxUnsentBytes + 4096);
}

TEST_F(GenerationTest, TimingsOfFirstAndLaterTokens) {
  start(R"({"model":"demo","prompt":"One day","n":2})");
  const auto tokens = tokens_of(" a boat went");
  TokenTiming timing = give(0, 0, {tokens[0]});
  EXPECT_EQ(timing.ttft, milliseconds(10));
  EXPECT_FALSE(timing.tbt);
  timing = give(0, 1, {tokens[0]});  // the other choice's first
  EXPECT_FALSE(timing.ttft);
  EXPECT_FALSE(timing.tbt);
  timing = give(0, 0, {tokens[1]});
  EXPECT_EQ(timing.tbt, milliseconds(20));
}

TEST_F(GenerationTest, MetricsCountEachChoiceOnce) {
  start(R"({"model":"demo","prompt":"One day","n":2,"stream":true})");
  give_text(" a boat", 0);
  give(0, 1, {tokens_of(" a")[0]});
  generation_->close(http::CloseReason::kPeerGone);
  generation_->close(http::CloseReason::kPeerGone);
  std::string text;
  metrics_.write(text);
  const auto has = [&](const std::string& name, const std::string& labels, std::size_t value) {
    return text.find("\nsluice:" + name + "{model_name=\"\"" + labels + "} " +
                     std::to_string(value) + "\n") != std::string::npos;
  };
  const std::size_t tokens = tokens_of(" a boat").size() + 1;
  EXPECT_TRUE(has("request_success_total", ",finished_reason=\"length\"", 1));
  EXPECT_TRUE(has("request_success_total", ",finished_reason=\"abort\"", 1));
  EXPECT_TRUE(has("time_to_first_token_seconds_count", "", 1));
  EXPECT_TRUE(has("generation_tokens_total", "", tokens));
  EXPECT_TRUE(has("inter_token_latency_seconds_count", "", tokens - 2));
  EXPECT_TRUE(has("token_delivery_seconds_count", "", tokens));
}

// A full queue is no end of choices: it must not show in their latencies and lengths.
TEST_F(GenerationTest, RequestsThatTheEngineRefusedAreNotCounted) {
  start(R"({"model":"demo","prompt":["One day","The sea","The boat"],"n":2})");
  generation_->refuse(to_api_error(resource_exhausted("1 request is unfinished")), 1);
  EXPECT_EQ(exchange_->head->status, 429);
  EXPECT_TRUE(generation_->finished());
  EXPECT_THAT(engine_.cancelled, ElementsAre(kFirstId));
  std::string text;
  metrics_.write(text);
  EXPECT_THAT(text, HasSubstr("finished_reason=\"error\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("e2e_request_latency_seconds_count{model_name=\"\"} 2\n"));
}

TEST_F(GenerationTest, TheIdThatEndsAChoiceIsNoTextOfIt) {
  start(R"({"model":"demo","prompt":"One day","stop_token_ids":[5],"return_token_ids":true})");
  const auto tokens = tokens_of(" a boat.");
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    give(0, 0, {tokens[i]}, i + 1 == tokens.size() ? FinishReason::kStop : FinishReason::kNone);
  }
  ASSERT_TRUE(generation_->finished());
  EXPECT_EQ(answer()["choices"][0]["text"], " a boat");
  EXPECT_EQ(answer()["choices"][0]["token_ids"].size(), tokens.size());
  EXPECT_EQ(answer()["usage"]["completion_tokens"], tokens.size());
}

// The engine is not to blame for text that waits for the next token.
TEST_F(GenerationTest, HeldBackTextIsDeliveredFromTheStepThatReleasesIt) {
  start(R"({"model":"demo","prompt":"One day","stream":true,"stop":["boat sailed on"]})");
  give_text(" a boat sailed out");
  ASSERT_TRUE(generation_->finished());
  const std::size_t chunks = events().size() - 1;  // without [DONE]
  ASSERT_LT(chunks, tokens_of(" a boat sailed out").size());
  std::string text;
  metrics_.write(text);
  const std::string name = "\nsluice:token_delivery_seconds";
  EXPECT_THAT(text, HasSubstr(name + "_count{model_name=\"\"} " + std::to_string(chunks) + "\n"));
  EXPECT_THAT(text, HasSubstr(name + "_sum{model_name=\"\"} 0\n"));
}

TEST_F(GenerationTest, RequestsCarryWhatTheEngineNeeds) {
  start(
      R"({"model":"demo","prompt":"One day there was a boat, and the boat went to the sea again.",
            "priority":-3,"seed":5,"temperature":0})");
  const Request request = generation_->make_request(0, "alice");
  EXPECT_EQ(request.id, kFirstId);
  EXPECT_EQ(request.arrival, kReceived);
  EXPECT_EQ(request.priority, -3);
  EXPECT_EQ(request.client_key, "alice");
  EXPECT_EQ(request.sampling.seed, 5U);
  EXPECT_EQ(request.sampling.temperature, 0.0F);
  EXPECT_EQ(request.block_hashes.size(), request.prompt.size() / 16);
  EXPECT_TRUE(request.block_hash_root.has_value());
}

}  // namespace
}  // namespace sluice
