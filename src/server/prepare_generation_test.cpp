// From a parsed call to what runs: where the text of an answer begins.
#include "server/prepare_generation.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "grammar/grammar_matcher.h"
#include "tests/support/demo_model.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// A model of the SentencePiece kind: words begin with U+2581, and decoding drops the space before
// the first word.
ServedModel sentencepiece_model() {
  const fs::path directory =
      fs::path(testing::TempDir()) / ("prepare_generation_test_" + std::to_string(getpid()));
  fs::remove_all(directory);
  fs::create_directories(directory);
  std::ofstream(directory / "chat_template.jinja")
      << "{% for m in messages %}{{ m.content }}{% endfor %}";
  std::ofstream(directory / "tokenizer.json") << R"({"model":{"type":"BPE","merges":[],
      "vocab":{"<unk>":0,"a":1,"</s>":2,"\u2581Hello":3,"\u2581you":4}},
      "decoder":{"type":"Sequence","decoders":[
        {"type":"Replace","pattern":{"String":"\u2581"},"content":" "},
        {"type":"ByteFallback"},{"type":"Fuse"},
        {"type":"Strip","content":" ","start":1,"stop":0}]}})";
  EngineFacts facts;
  facts.limits = {.vocab_size = 5, .max_model_len = 64, .num_adapters = 0};
  facts.block_size = 4;
  facts.kv_identity.block_size = 4;
  auto model = load_served_model(directory.string(), "m", 1, std::move(facts));
  fs::remove_all(directory);
  EXPECT_TRUE(model) << model.error().message;
  return *std::move(model);
}

// The text of an answer of the tokens "\u2581Hello\u2581you".
std::string answer_to(ApiResult<GenerationCall> call) {
  EXPECT_TRUE(call);
  const ServedModel model = sentencepiece_model();
  PromptWorker worker(model);
  auto prepared = prepare_generation(worker, *std::move(call), "");
  EXPECT_TRUE(prepared) << prepared.error().message;
  TextStream& stream = prepared->parts.front().streams.front();
  std::string text;
  for (const TokenId token : {3, 4}) stream.push(std::span(&token, 1), text);
  stream.finish(text);
  return text;
}

TEST(PrepareGeneration, ChatAnswersDoNotBeginWithASpace) {
  const std::string messages = R"("model":"m","messages":[{"role":"user","content":"a"}])";
  EXPECT_EQ(answer_to(parse_chat_call("{" + messages + "}")), "Hello you");
  EXPECT_EQ(answer_to(parse_chat_call("{" + messages + R"(,"continue_final_message":true})")),
            " Hello you");
  EXPECT_EQ(answer_to(parse_completion_call(R"({"model":"m","prompt":"a"})")), " Hello you");
}

TEST(PrepareGeneration, BadWordsAreForbiddenAtTheBeginningAndBehindASpace) {
  const ServedModel model = test::load_demo_model(256);
  PromptWorker worker(model);
  const auto ids = [&](std::string_view text) {
    return *model.tokenizer.encode(text, {AddSpecialTokens::kNo});
  };
  const auto prepared = prepare_generation(
      worker, *parse_completion_call(R"({"model":"m","prompt":"a","bad_words":["boat"," fox"]})"),
      "");
  ASSERT_TRUE(prepared) << prepared.error().message;
  const auto& words = prepared->parts.front().sampling.bad_words;
  ASSERT_EQ(words.size(), 4U);
  EXPECT_EQ(words[0], ids("boat"));
  EXPECT_EQ(words[1], ids(" boat"));
  EXPECT_EQ(words[2], ids("fox"));
  EXPECT_EQ(words[3], ids(" fox"));
}

TEST(PrepareGeneration, APromptIsShortenedToTheTokensAskedFor) {
  const ServedModel model = test::load_demo_model(64);
  PromptWorker worker(model);
  const auto prompt_of = [&](const std::string& fields) {
    const auto call = parse_completion_call(R"({"model":"m","max_tokens":10,)" + fields + "}");
    auto prepared = prepare_generation(worker, *call, "");
    EXPECT_TRUE(prepared) << prepared.error().message;
    return prepared->parts.front().prompt.ids;
  };
  const std::string many = R"("prompt":[5,6,7,8,9])";
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(prompt_of(many + R"(,"truncate_prompt_tokens":2)"), (Ids{8, 9}));
  EXPECT_EQ(prompt_of(many + R"(,"truncate_prompt_tokens":2,"truncation_side":"right")"),
            (Ids{5, 6}));
  EXPECT_EQ(prompt_of(many + R"(,"truncate_prompt_tokens":5)"), (Ids{5, 6, 7, 8, 9}));

  // A text longer than the context is cut to the room beside max_tokens, behind its BOS.
  std::string text;
  for (int i = 0; i < 100; ++i) text += " boat";
  const Ids whole = *model.tokenizer.encode(text, {AddSpecialTokens::kYes});
  ASSERT_GT(whole.size(), 64U);
  ASSERT_EQ(whole.front(), *model.tokenizer.bos_id());
  const Ids cut = prompt_of(R"("prompt":")" + text + R"(","truncate_prompt_tokens":-1)");
  ASSERT_EQ(cut.size(), 54U);
  EXPECT_EQ(cut.front(), whole.front());
  EXPECT_EQ(Ids(cut.begin() + 1, cut.end()), Ids(whole.end() - 53, whole.end()));
}

TEST(PrepareGeneration, GrammarsAreCompiledOrRefusedByTheirField) {
  ServedModel model = test::load_demo_model(256);
  PromptWorker worker(model);
  const auto prepare = [&](const std::string& fields) {
    const auto call = parse_completion_call(R"({"model":"m","prompt":"a",)" + fields + "}");
    EXPECT_TRUE(call);
    return prepare_generation(worker, *call, "");
  };
  const auto prepared = prepare(R"("guided_json":{"type":"object"},"n":2)");
  ASSERT_TRUE(prepared) << prepared.error().message;
  EXPECT_NE(prepared->parts.front().sampling.grammar, nullptr);
  const std::pair<const char*, const char*> faults[] = {
      {R"("guided_regex":"(a")", "guided_regex"},
      {R"("grammar":"root ::= root \"a\" | \"b\"")", "grammar"},
      {R"("structured_outputs":{"choice":[]})", "structured_outputs.choice"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":{"not":{}}}})",
       "response_format.json_schema.schema"},
  };
  for (const auto& [fields, param] : faults) {
    const auto refused = prepare(fields);
    ASSERT_FALSE(refused) << fields;
    EXPECT_EQ(refused.error().status, 400);
    EXPECT_EQ(refused.error().param, param) << refused.error().message;
    EXPECT_EQ(refused.error().message.find(param), 0U) << refused.error().message;
  }
  const auto stopped = prepare_generation(
      worker,
      *parse_completion_call(R"({"model":"m","prompt":"a","guided_regex":"(a|b)*a(a|b){15}"})"), "",
      [] { return Status(Error{ErrorCode::kDeadlineExceeded, "over"}); });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().status, 504);
}

TEST(PrepareGeneration, ReasoningStandsBeforeTheGrammarsText) {
  ServedModel model = test::load_demo_model(256);
  model.reasoning_format = find_reasoning_format("deepseek_r1");
  ASSERT_NE(model.reasoning_format, nullptr);
  PromptWorker worker(model);
  const auto prepared = prepare_generation(
      worker, *parse_chat_call(R"({"model":"m","messages":[{"role":"user","content":"a"}],
                           "guided_regex":"yes|no"})"),
      "");
  ASSERT_TRUE(prepared) << prepared.error().message;
  GrammarMatcher matcher;
  matcher.assign(prepared->parts.front().sampling.grammar);
  const std::vector<TokenId> ids =
      *model.tokenizer.encode("<think>why</think>no", {AddSpecialTokens::kNo});
  for (const TokenId id : ids) {
    EXPECT_TRUE(matcher.accept(id));
  }
  EXPECT_TRUE(matcher.can_end());
}

// gpt-oss writes a header in front of all text, also without tools.
TEST(PrepareGeneration, AHeaderMayStandBeforeTheGrammarsText) {
  ServedModel model = test::load_demo_model(256);
  model.reasoning_format = find_reasoning_format("openai_gptoss");
  model.tool_format = find_tool_format("openai");
  PromptWorker worker(model);
  const auto prepared = prepare_generation(
      worker, *parse_chat_call(R"({"model":"m","messages":[{"role":"user","content":"a"}],
                           "guided_regex":"yes|no"})"),
      "");
  ASSERT_TRUE(prepared) << prepared.error().message;
  EXPECT_EQ(prepared->tool_format, model.tool_format);
  const auto accepts = [&](std::string_view text) {
    GrammarMatcher matcher;
    matcher.assign(prepared->parts.front().sampling.grammar);
    const std::vector<TokenId> ids = *model.tokenizer.encode(text, {AddSpecialTokens::kNo});
    return std::ranges::all_of(ids, [&](TokenId id) { return matcher.accept(id); }) &&
           matcher.can_end();
  };
  EXPECT_TRUE(accepts("<|channel|>final<|message|>yes"));
  EXPECT_TRUE(
      accepts("<|channel|>analysis<|message|>why<|end|><|start|>assistant"
              "<|channel|>final<|message|>no"));
  EXPECT_FALSE(accepts("yes"));
}

}  // namespace
}  // namespace sluice
