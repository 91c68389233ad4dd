// From a parsed call to what runs: where the text of an answer begins.
#include "server/prepare_generation.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace sluice {
namespace {

namespace fs = std::filesystem;

// A model of the SentencePiece kind: words begin with U+2581, and decoding drops the space before
// the first word.
ServedModel sentencepiece_model() {
  const fs::path directory = fs::path(testing::TempDir()) / "prepare_generation_test";
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

}  // namespace
}  // namespace sluice
