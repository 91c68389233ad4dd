#include "loadgen/request_writer.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sluice {
namespace {

using nlohmann::json;

TEST(RequestWriter, ACompletionHasIdsAndAsksForUsage) {
  RequestWriter writer({LoadEndpoint::kCompletions, "a\"b", 0.5, true}, PromptMaker({5, 6, 7}, 1));
  const http::ClientRequest request = writer.write({Duration(0), 4, 9, {}}, 0);
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.path, "/v1/completions");
  const json body = parse_json(request.body);
  EXPECT_EQ(body["model"], "a\"b");
  EXPECT_EQ(body["prompt"].size(), 4U);
  for (const json& id : body["prompt"]) EXPECT_TRUE(id >= 5 && id <= 7);
  EXPECT_EQ(body["max_tokens"], 9);
  EXPECT_EQ(body["temperature"], 0.5);
  EXPECT_EQ(body["stream"], true);
  EXPECT_EQ(body["stream_options"], json({{"include_usage", true}}));
  EXPECT_EQ(body["ignore_eos"], true);
  EXPECT_EQ(body["skip_special_tokens"], false);
}

TEST(RequestWriter, AChatHasWordsAndNothingThatOpenAiDoesNotKnow) {
  RequestWriter writer({LoadEndpoint::kChat, "m", 0, false}, PromptMaker({}, 1));
  const http::ClientRequest request = writer.write({Duration(0), 3, 9, {}}, 0);
  EXPECT_EQ(request.path, "/v1/chat/completions");
  const json body = parse_json(request.body);
  EXPECT_EQ(body["messages"][0]["role"], "user");
  EXPECT_FALSE(body["messages"][0]["content"].get<std::string>().empty());
  EXPECT_EQ(body.size(), 6U);
  EXPECT_FALSE(body.contains("ignore_eos"));
}

}  // namespace
}  // namespace sluice
