#include "http/response_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::http {
namespace {

using Event = ResponseParser::Event;
using testing::HasSubstr;

struct ParsedResponse {
  int heads = 0;
  std::string body;
  bool done = false;
  std::size_t consumed = 0;
  std::string refusal;
};

// Gives the bytes in pieces of `piece`, what is not taken again with more.
ParsedResponse parse_in_pieces(ResponseParser& parser, std::string_view bytes, std::size_t piece) {
  ParsedResponse out;
  std::string waiting;
  while (!bytes.empty()) {
    waiting += bytes.substr(0, piece);
    bytes.remove_prefix(std::min(piece, bytes.size()));
    for (bool more = true; more;) {
      const auto step = parser.put(waiting);
      out.body += step.body;
      out.consumed += step.consumed;
      more = step.event != Event::kNeedMore;
      if (step.event == Event::kHead) ++out.heads;
      if (step.event == Event::kDone) out.done = true;
      if (step.event == Event::kRefused) out.refusal = parser.message();
      waiting.erase(0, step.consumed);
      if (out.done || !out.refusal.empty()) return out;
    }
  }
  return out;
}

ParsedResponse parse_response(std::string_view bytes) {
  ResponseParser parser;
  return parse_in_pieces(parser, bytes, bytes.size());
}

TEST(ResponseParser, ReadsABodyOfGivenLengthHoweverItIsCut) {
  const std::string bytes =
      "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-Id:  7 \r\nContent-Length: 5\r\n\r\nhello";
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    ResponseParser parser;
    const auto out = parse_in_pieces(parser, bytes, piece);
    EXPECT_TRUE(out.done) << piece << out.refusal;
    EXPECT_EQ(out.heads, 1);
    EXPECT_EQ(out.body, "hello");
    EXPECT_EQ(out.consumed, bytes.size());
    EXPECT_EQ(parser.head().status, 200);
    EXPECT_EQ(parser.head().reason, "OK");
    EXPECT_EQ(*parser.head().header("x-id"), "7");
    EXPECT_EQ(parser.head().header("x-other"), nullptr);
    EXPECT_TRUE(parser.keep_alive());
  }
}

TEST(ResponseParser, ReadsChunksExtensionsAndTrailersHoweverTheyAreCut) {
  const std::string bytes =
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5;name=\"x\"\r\nhello\r\nA\r\n, world!!!\r\n0\r\nX-Trailer: 1\r\n\r\n";
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    ResponseParser parser;
    const auto out = parse_in_pieces(parser, bytes, piece);
    EXPECT_TRUE(out.done) << piece << out.refusal;
    EXPECT_EQ(out.body, "hello, world!!!");
    EXPECT_EQ(out.consumed, bytes.size());
    EXPECT_TRUE(parser.keep_alive());
  }
}

TEST(ResponseParser, LeavesWhatComesBehindTheResponse) {
  const auto out = parse_response("HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\n");
  EXPECT_TRUE(out.done);
  EXPECT_EQ(out.consumed, 27U);
}

TEST(ResponseParser, PassesOverInterimResponses) {
  ResponseParser parser;
  const auto out = parse_in_pieces(parser,
                                   "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nA: b"
                                   "\r\n\r\nHTTP/1.1 429 Too Many\r\nContent-Length: 0\r\n\r\n",
                                   7);
  EXPECT_TRUE(out.done) << out.refusal;
  EXPECT_EQ(out.heads, 1);
  EXPECT_EQ(parser.head().status, 429);
  EXPECT_EQ(parser.head().header("a"), nullptr);
}

TEST(ResponseParser, WithoutALengthTheBodyEndsWithTheConnection) {
  ResponseParser parser;
  const auto out = parse_in_pieces(parser, "HTTP/1.0 200 OK\r\n\r\nall of it", 4);
  EXPECT_FALSE(out.done);
  EXPECT_EQ(out.body, "all of it");
  EXPECT_TRUE(parser.end_of_input());
  EXPECT_FALSE(parser.keep_alive());
}

TEST(ResponseParser, TellsWhetherTheConnectionStays) {
  const auto stays = [](std::string_view head) {
    ResponseParser parser;
    EXPECT_TRUE(parse_in_pieces(parser, head, head.size()).done);
    return parser.keep_alive();
  };
  EXPECT_TRUE(stays("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
  EXPECT_FALSE(stays("HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 0\r\n\r\n"));
  EXPECT_FALSE(stays("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"));
}

TEST(ResponseParser, AnEndTooEarlySaysSo) {
  ResponseParser nothing;
  EXPECT_FALSE(nothing.end_of_input());
  EXPECT_THAT(nothing.message(), HasSubstr("without an answer"));
  for (const std::string_view begun :
       {"HTTP/1.1 200 OK\r\nCont", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"}) {
    ResponseParser parser;
    parse_in_pieces(parser, begun, begun.size());
    EXPECT_FALSE(parser.end_of_input()) << begun;
    EXPECT_THAT(parser.message(), HasSubstr("before the end of its answer"));
  }
}

TEST(ResponseParser, RefusesWhatTwoReadersCouldReadDifferently) {
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  const auto refusal = [](const std::string& text) { return parse_response(text).refusal; };
  EXPECT_THAT(refusal("SSH-2.0-OpenSSH\r\n"), HasSubstr("not an HTTP/1.1 answer"));
  EXPECT_THAT(refusal("HTTP/2 200 OK\r\n"), HasSubstr("not an HTTP/1.1 answer"));
  EXPECT_THAT(refusal("HTTP/1.1 20 OK\r\n"), HasSubstr("three digits"));
  EXPECT_THAT(refusal("HTTP/1.1 2000\r\n"), HasSubstr("three digits"));
  EXPECT_THAT(refusal("HTTP/1.1 101 Switching\r\n\r\n"),
              HasSubstr("protocol that was not requested"));
  EXPECT_THAT(refusal("HTTP/1.1 200 OK\nA: b\r\n"), HasSubstr("carriage return"));
  EXPECT_THAT(refusal(ok + " folded: 1\r\n"), HasSubstr("'name: value'"));
  EXPECT_THAT(refusal(ok + "A b: 1\r\n"), HasSubstr("'name: value'"));
  EXPECT_THAT(refusal(ok + std::string("A: \0\r\n", 6)), HasSubstr("control characters"));
  EXPECT_THAT(refusal(ok + "Content-Length: -1\r\n"), HasSubstr("not a number"));
  EXPECT_THAT(refusal(ok + "Content-Length: 1\r\nContent-Length: 2\r\n"), HasSubstr("twice"));
  EXPECT_THAT(refusal(ok + "Transfer-Encoding: gzip, chunked\r\n"), HasSubstr("only 'chunked'"));
  EXPECT_THAT(refusal(ok + "Content-Encoding: gzip\r\n"), HasSubstr("none was requested"));
  EXPECT_THAT(refusal(ok + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
              HasSubstr("exclude each other"));
  EXPECT_THAT(refusal("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
              HasSubstr("HTTP/1.0"));
  const std::string chunked = ok + "Transfer-Encoding: chunked\r\n\r\n";
  EXPECT_THAT(refusal(chunked + "x\r\n"), HasSubstr("hexadecimal"));
  EXPECT_THAT(refusal(chunked + "1 1\r\n"), HasSubstr("hexadecimal"));
  EXPECT_THAT(refusal(chunked + "1\r\nab\r\n"), HasSubstr("longer than its size"));
  EXPECT_THAT(refusal(chunked + "0\r\nnothing\r\n"), HasSubstr("trailer"));
}

TEST(ResponseParser, BoundsWhatItReads) {
  const std::string long_field = "HTTP/1.1 200 OK\r\nA: " + std::string(70000, 'x');
  EXPECT_THAT(parse_response(long_field).refusal, HasSubstr("longer than 65536 bytes"));
  std::string many = "HTTP/1.1 200 OK\r\n";
  for (int i = 0; i < 129; ++i) many += "A: b\r\n";
  EXPECT_THAT(parse_response(many).refusal, HasSubstr("more than 128 headers"));
  const std::string chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_THAT(parse_response(chunked + "1;" + std::string(5000, 'x')).refusal,
              HasSubstr("longer than 4096 bytes"));
  std::string interim;
  for (int i = 0; i < 3000; ++i) interim += "HTTP/1.1 100 Continue\r\n\r\n";
  EXPECT_THAT(parse_response(interim).refusal, HasSubstr("longer than 65536 bytes"));
}

}  // namespace
}  // namespace sluice::http
