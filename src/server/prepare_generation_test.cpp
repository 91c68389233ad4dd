// From a parsed call to what runs: where the text of an answer begins.
#include "server/prepare_generation.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

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

}  // namespace
}  // namespace sluice
