#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/embedding_json.h"
#include "server/generation_call.h"

namespace sluice {
namespace {

using testing::HasSubstr;

GenerationCall parse(const std::string& body, EmbeddingUse use = EmbeddingUse::kVectors) {
  auto call = parse_embedding_call(body, use);
  EXPECT_TRUE(call) << call.error().message;
  return call ? *std::move(call) : GenerationCall{};
}
std::string error_of(const std::string& body, EmbeddingUse use = EmbeddingUse::kVectors) {
  const auto call = parse_embedding_call(body, use);
  return call ? "parses" : call.error().message;
}

TEST(EmbeddingCall, InputsOfTheOpenAiApi) {
  GenerationCall call = parse(R"({"model": "m", "input": "text", "encoding_format": "base64",
                                  "dimensions": 8, "user": "u"})");
  EXPECT_EQ(call.kind, ApiKind::kEmbedding);
  EXPECT_EQ(call.prompts.size(), 1U);
  EXPECT_TRUE(call.embedding.base64);
  EXPECT_EQ(call.embedding.dimensions, 8);
  EXPECT_EQ(call.embedding.field_of(0, 1), "input");
  call = parse(R"({"model": "m", "input": [[1, 2], [3]]})");
  EXPECT_EQ(std::get<std::vector<TokenId>>(call.prompts[1]), std::vector<TokenId>{3});
  EXPECT_EQ(call.embedding.field_of(1, 2), "input[1]");
  call = parse(R"({"model": "m", "input": [1, 2]})");
  EXPECT_EQ(call.prompts.size(), 1U);
}

TEST(EmbeddingCall, WrongFieldsAreNamed) {
  EXPECT_THAT(error_of(R"({"model": "m"})"), HasSubstr("input: is missing"));
  EXPECT_THAT(error_of(R"({"input": "a"})"), HasSubstr("model: is missing"));
  EXPECT_THAT(error_of(R"({"model": "m", "input": []})"), HasSubstr("input: is an empty"));
  EXPECT_THAT(error_of(R"({"model": "m", "input": ["a", 1]})"), HasSubstr("input[1]"));
  EXPECT_THAT(error_of(R"({"model": "m", "input": "a", "dimensions": 0})"),
              HasSubstr("dimensions"));
  EXPECT_THAT(error_of(R"({"model": "m", "input": "a", "encoding_format": "int8"})"),
              HasSubstr("encoding_format"));
  EXPECT_THAT(error_of(R"({"model": "m", "input": "a", "temperature": 1})"),
              HasSubstr("temperature"));
  EXPECT_THAT(error_of(R"({"model": "m", "messages": [], "input": "a"})"), HasSubstr("messages"));
}

TEST(EmbeddingCall, PairsToScore) {
  constexpr auto kScore = EmbeddingUse::kScore;
  const GenerationCall call =
      parse(R"({"model": "m", "text_1": "q", "text_2": ["a", "b"]})", kScore);
  EXPECT_EQ(call.prompts.size(), 3U);
  EXPECT_EQ(call.embedding.num_first, 1U);
  EXPECT_EQ(call.embedding.field_of(0, 3), "text_1");
  EXPECT_EQ(call.embedding.field_of(2, 3), "text_2[1]");
  parse(R"({"model": "m", "queries": ["a", "b"], "documents": ["c", "d"]})", kScore);
  EXPECT_THAT(error_of(R"({"model": "m", "queries": ["a", "b"], "documents": ["c"]})", kScore),
              HasSubstr("as many"));
  EXPECT_THAT(error_of(R"({"model": "m", "queries": "a", "text_1": "b", "text_2": "c"})", kScore),
              HasSubstr("together with queries"));
  EXPECT_THAT(error_of(R"({"model": "m", "text_1": "a"})", kScore), HasSubstr("documents"));
  EXPECT_THAT(error_of(R"({"model": "m", "text_1": "a", "text_2": [1]})", kScore),
              HasSubstr("text_2[0]"));
}

TEST(EmbeddingCall, DocumentsToRank) {
  constexpr auto kRerank = EmbeddingUse::kRerank;
  GenerationCall call = parse(
      R"({"model": "m", "query": "q", "documents": ["a", {"text": "b"}], "top_n": 1})", kRerank);
  EXPECT_EQ(call.prompts.size(), 3U);
  EXPECT_EQ(call.embedding.top_n, 1);
  EXPECT_EQ(call.embedding.documents, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(call.embedding.field_of(0, 3), "query");
  EXPECT_EQ(call.embedding.field_of(1, 3), "documents[0]");
  call = parse(
      R"({"model": "m", "query": "q", "documents": ["a"], "top_n": 0, "return_documents": false})",
      kRerank);
  EXPECT_FALSE(call.embedding.top_n);
  EXPECT_TRUE(call.embedding.documents.empty());
  EXPECT_THAT(error_of(R"({"model": "m", "documents": ["a"]})", kRerank), HasSubstr("query"));
  EXPECT_THAT(error_of(R"({"model": "m", "query": "q"})", kRerank), HasSubstr("documents"));
  EXPECT_THAT(error_of(R"({"model": "m", "query": "q", "documents": []})", kRerank),
              HasSubstr("documents: is empty"));
  EXPECT_THAT(error_of(R"({"model": "m", "query": "q", "documents": [{"title": "t"}]})", kRerank),
              HasSubstr("documents[0]"));
}

nlohmann::json answer(const EmbeddingPart& part, bool normalize,
                      const std::vector<std::vector<float>>& vectors) {
  AnswerHead head;
  head.kind = ApiKind::kEmbedding;
  head.id = "x";
  head.model = "m";
  return parse_json(embedding_answer_json(head, part, normalize, vectors, {7, 0, 2}));
}

TEST(EmbeddingAnswer, VectorsAsFloatsAndAsBase64) {
  EmbeddingPart part;
  nlohmann::json json = answer(part, false, {{3, 4}, {1, 0}});
  EXPECT_EQ(json["object"], "list");
  EXPECT_EQ(json["data"][0]["embedding"], nlohmann::json::parse("[3.0, 4.0]"));
  EXPECT_EQ(json["data"][1]["index"], 1);
  EXPECT_EQ(json["usage"]["total_tokens"], 7);
  EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
  json = answer(part, true, {{3, 4}});
  EXPECT_FLOAT_EQ(json["data"][0]["embedding"][0].get<float>(), 0.6F);
  part.dimensions = 1;
  EXPECT_EQ(answer(part, true, {{3, 4}})["data"][0]["embedding"], nlohmann::json::parse("[1.0]"));
  part.base64 = true;
  EXPECT_EQ(answer(part, false, {{1, 4}})["data"][0]["embedding"], "AACAPw==");
  // A vector without a direction stays as it is.
  EXPECT_EQ(answer(EmbeddingPart{}, true, {{0, 0}})["data"][0]["embedding"],
            nlohmann::json::parse("[0.0, 0.0]"));
}

TEST(EmbeddingAnswer, ScoresAndRanks) {
  EmbeddingPart part;
  part.use = EmbeddingUse::kScore;
  part.num_first = 1;
  const std::vector<std::vector<float>> vectors = {{2, 0}, {0, 3}, {5, 0}, {-1, 0}, {0, 0}};
  const nlohmann::json scores = answer(part, true, vectors);
  const std::vector<float> wanted = {0, 1, -1, 0};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_FLOAT_EQ(scores["data"][i]["score"].get<float>(), wanted[i]);
  }
  part.num_first = 2;
  EXPECT_FLOAT_EQ(answer(part, true, {{1, 0}, {0, 1}, {1, 0}, {0, 2}})["data"][1]["score"], 1);
  part.use = EmbeddingUse::kRerank;
  part.num_first = 1;
  part.documents = {"a", "b", "c", "d"};
  part.top_n = 3;
  const nlohmann::json ranks = answer(part, true, vectors)["results"];
  ASSERT_EQ(ranks.size(), 3U);
  EXPECT_EQ(ranks[0]["document"]["text"], "b");
  EXPECT_EQ(ranks[0]["index"], 1);
  EXPECT_EQ(ranks[1]["index"], 0);  // before the other 0, as in the call
  EXPECT_EQ(ranks[2]["index"], 3);
}

}  // namespace
}  // namespace sluice
