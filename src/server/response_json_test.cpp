#include "server/response_json.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

namespace sluice {
namespace {

using Json = nlohmann::json;

const AnswerHead kChatHead{ApiKind::kChat, "chatcmpl-1", 1700000000, "de\"mo", ""};
const AnswerHead kCompletionHead{ApiKind::kCompletion, "cmpl-1", 1700000000, "demo", ""};
const std::string kChatChunk =
    R"({"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,)"
    R"("model":"de\"mo","choices":[)";
const std::string kCompletionChunk =
    R"({"id":"cmpl-1","object":"text_completion","created":1700000000,"model":"demo","choices":[)";

std::string chunk(const AnswerHead& head, const ChunkPart& part) {
  std::string out;
  ChunkWriter(head).append_chunk(part, out);
  EXPECT_FALSE(parse_json(out).is_discarded()) << out;
  return out;
}

ChunkPart text_part(std::string_view text) {
  ChunkPart part;
  part.text = text;
  return part;
}

// "é" in two halves: the second token ends what the first began.
std::vector<OutputTokenLogprobs> halves() {
  std::vector<OutputTokenLogprobs> tokens(2);
  tokens[0].chosen = {7, "\xC3", -0.5F};
  tokens[0].top = {{7, "\xC3", -0.5F}, {9, "\xE6", -1.0F}, {3, "a", -2.0F}};
  tokens[1].chosen = {8, "\xA9", -std::numeric_limits<float>::infinity()};
  tokens[1].text_offset = 1;
  return tokens;
}

LogprobList list_of(std::vector<OutputTokenLogprobs> tokens) {
  const std::size_t size = tokens.size();
  return {size, [tokens = std::move(tokens)](std::size_t i, OutputTokenLogprobs& out) {
            out = tokens[i];
          }};
}

TEST(AnswerJson, Chat) {
  ChoiceAnswer choice;
  choice.text = "a \"quote\"\n\x01 é";
  const Usage usage{5, 3, 4};
  const std::string out = answer_json(kChatHead, std::span(&choice, 1), usage);
  EXPECT_EQ(out, R"({"id":"chatcmpl-1","object":"chat.completion","created":1700000000,)"
                 R"("model":"de\"mo","choices":[{"index":0,"message":{"role":"assistant",)"
                 R"("content":"a \"quote\"\n\u0001 é","refusal":null},"logprobs":null,)"
                 R"("finish_reason":"stop","stop_reason":null}],"usage":{"prompt_tokens":5,)"
                 R"("completion_tokens":3,"total_tokens":8,)"
                 R"("prompt_tokens_details":{"cached_tokens":4}}})");
  EXPECT_EQ(parse_json(out)["choices"][0]["message"]["content"], choice.text);
}

TEST(AnswerJson, CompletionsOfSeveralChoices) {
  std::vector<ChoiceAnswer> choices(2);
  choices[0].text = "x";
  choices[0].finish_reason = FinishReason::kLength;
  choices[0].token_ids = std::vector<TokenId>{1, 2};
  choices[0].prompt_token_ids = std::vector<TokenId>{};
  choices[1].index = 1;
  choices[1].stop_reason = "</s>";
  EXPECT_EQ(answer_json(kCompletionHead, choices, Usage{1, 2, 0}),
            kCompletionChunk +
                R"({"index":0,"text":"x","logprobs":null,"finish_reason":"length",)"
                R"("stop_reason":null,"token_ids":[1,2],"prompt_token_ids":[]},)"
                R"({"index":1,"text":"","logprobs":null,"finish_reason":"stop",)"
                R"("stop_reason":"</s>"}],"usage":{"prompt_tokens":1,"completion_tokens":2,)"
                R"("total_tokens":3,"prompt_tokens_details":{"cached_tokens":0}}})");
}

TEST(AnswerJson, ChatHasThePromptsTokensOnce) {
  std::vector<ChoiceAnswer> choices(2);
  for (ChoiceAnswer& choice : choices) {
    choice.prompt_token_ids = std::vector<TokenId>{4, 5};
    choice.token_ids = std::vector<TokenId>{6};
  }
  const Json parsed = parse_json(answer_json(kChatHead, choices, Usage{}));
  EXPECT_EQ(parsed["prompt_token_ids"], Json({4, 5}));
  EXPECT_EQ(parsed["choices"][1]["token_ids"], Json::array({6}));
  EXPECT_FALSE(parsed["choices"][0].contains("prompt_token_ids"));
}

TEST(AnswerJson, EveryFinishReasonHasItsName) {
  const std::pair<FinishReason, const char*> names[] = {
      {FinishReason::kStop, "stop"},       {FinishReason::kLength, "length"},
      {FinishReason::kCancelled, "abort"}, {FinishReason::kError, "error"},
      {FinishReason::kNoMemory, "error"},  {FinishReason::kNoAdapter, "error"},
      {FinishReason::kLostKv, "error"}};
  for (const auto& [reason, name] : names) {
    ChoiceAnswer choice;
    choice.finish_reason = reason;
    const Json parsed = parse_json(answer_json(kChatHead, std::span(&choice, 1), Usage{}));
    EXPECT_EQ(parsed["choices"][0]["finish_reason"], name);
  }
}

TEST(AnswerJson, ChatLogprobsHoldExactBytes) {
  ChoiceAnswer choice;
  choice.logprobs = list_of(halves());
  const std::string out = answer_json(kChatHead, std::span(&choice, 1), Usage{});
  EXPECT_NE(out.find(R"("logprobs":{"content":[{"token":"�","logprob":-0.5,"bytes":[195],)"
                     R"("top_logprobs":[{"token":"�","logprob":-0.5,"bytes":[195]},)"
                     R"({"token":"�","logprob":-1.0,"bytes":[230]},)"
                     R"({"token":"a","logprob":-2.0,"bytes":[97]}]},)"
                     R"({"token":"�","logprob":-9999.0,"bytes":[169],"top_logprobs":[]}],)"
                     R"("refusal":null},"finish_reason")"),
            std::string::npos)
      << out;
  EXPECT_FALSE(parse_json(out).is_discarded());
}

TEST(AnswerJson, CompletionLogprobsAreParallelLists) {
  ChoiceAnswer choice;
  choice.logprobs = list_of(halves());
  const Json parsed = parse_json(answer_json(kCompletionHead, std::span(&choice, 1), Usage{}));
  const Json& logprobs = parsed["choices"][0]["logprobs"];
  EXPECT_EQ(dump_json(logprobs),
            R"({"text_offset":[0,1],"token_logprobs":[-0.5,-9999.0],"tokens":["�","�"],)"
            R"("top_logprobs":[{"a":-2.0,"�":-0.5},{"�":-9999.0}]})");
}

TEST(AnswerJson, LogprobsThatAreNoNumbersStayJson) {
  ChoiceAnswer choice;
  for (const float odd :
       {std::numeric_limits<float>::quiet_NaN(), -1e9F, std::numeric_limits<float>::infinity()}) {
    std::vector<OutputTokenLogprobs> token(1);
    token.front().chosen.logprob = odd;
    choice.logprobs = list_of(token);
    const Json parsed = parse_json(answer_json(kCompletionHead, std::span(&choice, 1), Usage{}));
    EXPECT_EQ(parsed["choices"][0]["logprobs"]["token_logprobs"][0], -9999.0);
  }
}

TEST(ChunkWriter, ChatChunksFromFirstToLast) {
  ChunkPart first;
  first.first = true;
  EXPECT_EQ(chunk(kChatHead, first), kChatChunk +
                                         R"({"index":0,"delta":{"role":"assistant","content":""},)"
                                         R"("logprobs":null,"finish_reason":null}]})");
  EXPECT_EQ(chunk(kChatHead, text_part("a\n")),
            kChatChunk + R"({"index":0,"delta":{"content":"a\n"},"logprobs":null,)"
                         R"("finish_reason":null}]})");
  ChunkPart last;
  last.index = 2;
  last.finish_reason = FinishReason::kStop;
  last.stop_reason = "END";
  EXPECT_EQ(chunk(kChatHead, last),
            kChatChunk + R"({"index":2,"delta":{},"logprobs":null,"finish_reason":"stop",)"
                         R"("stop_reason":"END"}]})");
  last.text = "x";
  EXPECT_EQ(parse_json(chunk(kChatHead, last))["choices"][0]["delta"]["content"], "x");
  EXPECT_EQ(parse_json(chunk(kChatHead, text_part("")))["choices"][0]["delta"]["content"], "");
}

TEST(ChunkWriter, CompletionChunks) {
  EXPECT_EQ(chunk(kCompletionHead, text_part("é")),
            kCompletionChunk + R"({"index":0,"text":"é","logprobs":null,"finish_reason":null}]})");
  ChunkPart last;
  last.finish_reason = FinishReason::kLength;
  EXPECT_EQ(chunk(kCompletionHead, last),
            kCompletionChunk + R"({"index":0,"text":"","logprobs":null,"finish_reason":"length",)"
                               R"("stop_reason":null}]})");
}

TEST(ChunkWriter, CarriesIdsLogprobsAndUsage) {
  const std::vector<TokenId> prompt = {1, 2};
  const std::vector<TokenId> ids = {3};
  const Usage usage{2, 1, 0};
  const LogprobList logprobs = list_of(halves());
  ChunkPart part = text_part("x");
  part.token_ids = ids;
  part.prompt_token_ids = &prompt;
  part.usage = &usage;
  part.logprobs = &logprobs;
  const Json chat = parse_json(chunk(kChatHead, part));
  EXPECT_EQ(chat["prompt_token_ids"], Json({1, 2}));
  EXPECT_EQ(chat["choices"][0]["token_ids"], Json::array({3}));
  EXPECT_EQ(chat["usage"]["total_tokens"], 3);
  EXPECT_EQ(chat["choices"][0]["logprobs"]["content"][1]["bytes"], Json::array({169}));
  const Json text = parse_json(chunk(kCompletionHead, part));
  EXPECT_EQ(text["choices"][0]["prompt_token_ids"], Json({1, 2}));
  EXPECT_FALSE(text.contains("prompt_token_ids"));
  EXPECT_EQ(text["choices"][0]["logprobs"]["tokens"].size(), 2U);
}

TEST(ChunkWriter, TheUsageChunkHasNoChoices) {
  std::string out = "kept";
  ChunkWriter(kCompletionHead).append_usage_chunk(Usage{7, 2, 6}, out);
  EXPECT_EQ(out, "kept" + kCompletionChunk +
                     R"(],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,)"
                     R"("prompt_tokens_details":{"cached_tokens":6}}})");
}

TEST(AnswerJson, TheBoundIsAboveEveryAnswer) {
  std::string hard;  // each byte as long in JSON as a byte can be
  for (int i = 0; i < 5000; ++i) hard += '\x01';
  std::vector<OutputTokenLogprobs> tokens(50);
  for (OutputTokenLogprobs& token : tokens) {
    token.chosen = {1, std::string(200, '\x01'), -0.123456789F};
    token.top.assign(20, token.chosen);
    for (TokenLogprobText& item : token.top) item.bytes += std::to_string(&item - &token.top[0]);
    token.text_offset = 1'000'000'000;
  }
  ChoiceAnswer choice;
  choice.text = hard;
  choice.token_ids = std::vector<TokenId>(1000, 2'000'000'000);
  choice.logprobs = list_of(tokens);
  const std::vector<ChoiceAnswer> choices(3, choice);
  for (const AnswerHead& head : {kChatHead, kCompletionHead}) {
    const std::size_t length = answer_json(head, choices, Usage{}).size();
    EXPECT_LE(length, answer_json_bound(head.kind, choices));
    EXPECT_GT(2 * length, answer_json_bound(head.kind, choices));
  }
}

TEST(AppendSse, FramesOneEvent) {
  std::string out = "x";
  append_sse("[DONE]", out);
  EXPECT_EQ(out, "xdata: [DONE]\n\n");
}

TEST(ModelsJson, ListsCards) {
  const std::vector<ModelCard> models = {{"a", 5, 8192, {}, {}}, {"b\\", 6, 4096, "dir", "a"}};
  EXPECT_EQ(models_json(models),
            R"({"object":"list","data":[{"id":"a","object":"model","created":5,)"
            R"("owned_by":"sluice","max_model_len":8192},{"id":"b\\","object":"model",)"
            R"("created":6,"owned_by":"sluice","max_model_len":4096,"root":"dir","parent":"a"}]})");
  EXPECT_EQ(model_json(models[0]), R"({"id":"a","object":"model","created":5,)"
                                   R"("owned_by":"sluice","max_model_len":8192})");
  EXPECT_EQ(models_json({}), R"({"object":"list","data":[]})");
}

TEST(TokenizeJson, HasVllmsShape) {
  TokenizeAnswer answer{{1, 2}, 100, std::nullopt};
  EXPECT_EQ(tokenize_json(answer),
            R"({"count":2,"max_model_len":100,"tokens":[1,2],"token_strs":null})");
  answer.token_strs = {"a", "\xC3"};
  EXPECT_EQ(tokenize_json(answer),
            R"({"count":2,"max_model_len":100,"tokens":[1,2],"token_strs":["a","�"]})");
  EXPECT_EQ(detokenize_json("a\"\n"), R"({"prompt":"a\"\n"})");
}

TEST(ResponseJson, ObjectsAndChunksCarryTheFingerprint) {
  for (AnswerHead head : {kChatHead, kCompletionHead}) {
    EXPECT_FALSE(parse_json(answer_json(head, {}, {})).contains("system_fingerprint"));
    head.system_fingerprint = "fp_12";
    EXPECT_EQ(parse_json(answer_json(head, {}, {}))["system_fingerprint"], "fp_12");
    EXPECT_EQ(parse_json(chunk(head, {}))["system_fingerprint"], "fp_12");
  }
}

}  // namespace
}  // namespace sluice
