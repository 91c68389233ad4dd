#include "loadgen/stream_chunk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using testing::HasSubstr;

StreamChunk read_chunk(std::string_view event) {
  ChunkReader reader;
  auto chunk = reader.read(event);
  EXPECT_TRUE(chunk.has_value()) << event;
  return chunk ? *chunk : StreamChunk();
}

TEST(StreamChunk, APieceOfACompletionIsAToken) {
  const auto text = read_chunk(R"({"choices":[{"index":0,"text":" a","finish_reason":null}]})");
  EXPECT_TRUE(text.has_choice && text.has_token && !text.ended && !text.has_usage);
  // Its text may be held back, as half a character is.
  const auto held = read_chunk(R"({"choices":[{"text":"","finish_reason":null}],"usage":null})");
  EXPECT_TRUE(held.has_token && !held.has_usage);
  const auto last = read_chunk(R"({"choices":[{"text":"b","finish_reason":"length"}]})");
  EXPECT_TRUE(last.has_token && last.ended);
  const auto only_end = read_chunk(R"({"choices":[{"text":"","finish_reason":"stop"}]})");
  EXPECT_TRUE(!only_end.has_token && only_end.ended);
}

TEST(StreamChunk, InAChatOnlyContentIsAToken) {
  const auto is_token = [](const std::string& delta) {
    return read_chunk(R"({"choices":[{"delta":)" + delta + R"(,"finish_reason":null}]})").has_token;
  };
  EXPECT_FALSE(is_token(R"({"role":"assistant","content":""})"));
  EXPECT_FALSE(is_token("{}"));
  EXPECT_TRUE(is_token(R"({"content":"x"})"));
  EXPECT_TRUE(is_token(R"({"content":null,"reasoning_content":"x"})"));
  EXPECT_TRUE(is_token(R"({"reasoning":"x"})"));
  EXPECT_TRUE(is_token(R"({"tool_calls":[{"index":0}]})"));
  EXPECT_FALSE(is_token(R"({"tool_calls":[]})"));
}

TEST(StreamChunk, TextIsWhatPeopleWouldRead) {
  ChunkReader reader;
  const auto text = [&](const char* event) { return std::string(reader.read(event)->text); };
  EXPECT_EQ(text(R"({"choices":[{"text":" a","finish_reason":null}]})"), " a");
  EXPECT_EQ(text(R"({"choices":[{"delta":{"content":"b"}}]})"), "b");
  EXPECT_EQ(text(R"({"choices":[{"delta":{"content":null,"reasoning_content":"c"}}]})"), "c");
  EXPECT_EQ(text(R"({"choices":[{"delta":{"role":"assistant"}}]})"), "");
}

TEST(StreamChunk, UsageStandsWithOrWithoutChoices) {
  const auto last =
      read_chunk(R"({"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":34}})");
  EXPECT_TRUE(last.has_usage && !last.has_choice);
  EXPECT_EQ(last.prompt_tokens, 12);
  EXPECT_EQ(last.completion_tokens, 34);
  const auto huge = read_chunk(R"({"usage":{"prompt_tokens":-5,"completion_tokens":99999999999}})");
  EXPECT_EQ(huge.prompt_tokens, 0);
  EXPECT_EQ(huge.completion_tokens, 2147483647);
}

TEST(StreamChunk, ErrorsOfServersAreTold) {
  EXPECT_EQ(read_chunk(R"({"error":{"message":"out of\nmemory","code":500}})").error,
            "out of memory");
  EXPECT_EQ(read_chunk(R"({"object":"error","message":"old style"})").error, "old style");
  ChunkReader reader;
  EXPECT_EQ(reader.error_message(R"({"error":"plain"})"), "plain");
  EXPECT_EQ(reader.error_message(R"({"detail":"Not Found"})"), "Not Found");
  EXPECT_EQ(reader.error_message("<html>Bad\r\nGateway</html>"), "<html>Bad  Gateway</html>");
  EXPECT_EQ(reader.error_message(""), "(no body)");
  EXPECT_EQ(reader.error_message(std::string(1000, 'x')).size(), 203U);
}

TEST(StreamChunk, OtherTextIsRefusedAndItsBeginningShown) {
  ChunkReader reader;
  for (const std::string_view text : {"", "{", "[]", "7", "{\"choices\"", R"({"other":1})"}) {
    const auto chunk = reader.read(text);
    ASSERT_FALSE(chunk.has_value()) << text;
    EXPECT_THAT(chunk.error().message, HasSubstr(std::string(text)));
  }
  EXPECT_FALSE(reader.read(std::string(5000, '[')).has_value());
}

}  // namespace
}  // namespace sluice
