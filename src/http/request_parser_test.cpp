#include "http/request_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace sluice::http {
namespace {

using ::testing::HasSubstr;

struct Parsed {
  bool done = false;
  int status = 0;  // when refused
  std::string message;
  Request request;
  std::size_t consumed = 0;
  bool keep_alive = false;
};

// Gives the bytes in pieces of `step`; what is not consumed is given again, as a connection does.
Parsed parse(std::string_view bytes, std::size_t step = 1 << 20) {
  RequestParser parser({.header_bytes = 1024, .body_bytes = 100});
  Parsed out;
  std::string waiting;
  std::size_t heads = 0;
  for (std::size_t given = 0; given < bytes.size() && !out.done && out.status == 0;) {
    waiting += bytes.substr(given, step);
    given += std::min(step, bytes.size() - given);
    for (;;) {
      const auto result = parser.put(waiting);
      waiting.erase(0, result.consumed);
      out.consumed += result.consumed;
      if (result.event == RequestParser::Event::kHead) {
        ++heads;
        continue;
      }
      if (result.event == RequestParser::Event::kRefused) {
        out.status = parser.status();
        out.message = parser.message();
      }
      out.done = result.event == RequestParser::Event::kDone;
      break;
    }
  }
  EXPECT_LE(heads, 1U);
  EXPECT_EQ(heads, out.done ? 1U : heads);
  out.request = parser.request();
  out.keep_alive = parser.keep_alive();
  return out;
}

// The whole request, in one piece and byte by byte, which must be the same.
Parsed parse_both_ways(std::string_view bytes) {
  Parsed whole = parse(bytes);
  const Parsed bytewise = parse(bytes, 1);
  EXPECT_EQ(whole.done, bytewise.done);
  EXPECT_EQ(whole.status, bytewise.status);
  EXPECT_EQ(whole.message, bytewise.message);
  if (whole.done) {
    EXPECT_EQ(whole.consumed, bytewise.consumed);
    EXPECT_EQ(whole.request.body, bytewise.request.body);
    EXPECT_EQ(whole.request.path, bytewise.request.path);
  }
  return whole;
}

std::string post(std::string_view headers, std::string_view body) {
  return "POST /p HTTP/1.1\r\nHost: h\r\n" + std::string(headers) + "\r\n" + std::string(body);
}

std::string chunked(std::string_view body) { return post("Transfer-Encoding: chunked\r\n", body); }

TEST(RequestParser, TakesRequestLineAndHeaders) {
  const Parsed parsed = parse_both_ways(
      "GET /v1/models?a=b&c HTTP/1.1\r\nHost: h\r\nX-Empty:\r\nx-Id: \t 7 \r\n\r\nNEXT");
  ASSERT_TRUE(parsed.done);
  EXPECT_EQ(parsed.request.method, "GET");
  EXPECT_EQ(parsed.request.path, "/v1/models");
  EXPECT_EQ(parsed.request.query, "a=b&c");
  ASSERT_NE(parsed.request.header("X-ID"), nullptr);
  EXPECT_EQ(*parsed.request.header("X-ID"), "7");
  EXPECT_EQ(*parsed.request.header("x-empty"), "");
  EXPECT_EQ(parsed.request.header("absent"), nullptr);
  EXPECT_TRUE(parsed.keep_alive);
}

TEST(RequestParser, LeavesWhatFollowsTheRequest) {
  const std::string first = post("Content-Length: 3\r\n", "abc");
  const Parsed parsed = parse(first + "GET / HTTP/1.1\r\n");
  ASSERT_TRUE(parsed.done);
  EXPECT_EQ(parsed.consumed, first.size());
  EXPECT_EQ(parsed.request.body, "abc");
}

TEST(RequestParser, ReadsTargets) {
  const auto target = [](const std::string& text) {
    return parse_both_ways("GET " + text + " HTTP/1.1\r\nHost: h\r\n\r\n");
  };
  EXPECT_EQ(target("http://h:8000/a/b?q").request.path, "/a/b");
  EXPECT_EQ(target("http://h:8000/a/b?q").request.query, "q");
  EXPECT_EQ(target("http://h").request.path, "/");
  EXPECT_EQ(target("http://h?q=1").request.query, "q=1");
  EXPECT_EQ(target("http://h?q=1").request.path, "/");
  EXPECT_EQ(target("*").request.path, "*");
  EXPECT_EQ(target("/a?u=http://x").request.path, "/a");
  EXPECT_EQ(target("/http://x").request.path, "/http://x");
  EXPECT_EQ(target("v1/models").status, 400);
  EXPECT_EQ(target("").status, 400);
  EXPECT_EQ(target("/a b").status, 400);
  EXPECT_EQ(target("/a\x01").status, 400);
}

TEST(RequestParser, EscapesOfUnreservedCharactersAreTheSamePath) {
  const auto path = [](const std::string& text) {
    return parse_both_ways("GET " + text + " HTTP/1.1\r\nHost: h\r\n\r\n").request.path;
  };
  EXPECT_EQ(path("/v1/%6dodels"), "/v1/models");
  EXPECT_EQ(path("/%76%31/%6D%6fdels?%6d"), "/v1/models");
  EXPECT_EQ(path("/%41%7A%30%2D%2e%5F%7e"), "/Az0-._~");
  // Segments stay what they are, and nothing is decoded twice.
  EXPECT_EQ(path("/v1%2Fmodels"), "/v1%2Fmodels");
  EXPECT_EQ(path("/v1%2fmodels"), "/v1%2fmodels");
  EXPECT_EQ(path("/%256d"), "/%256d");
  EXPECT_EQ(path("/a%3Fb%23c%20d%00%c3%a4%5C"), "/a%3Fb%23c%20d%00%c3%a4%5C");
  for (const char* malformed : {"/%6d%", "/%6d%6", "/%6d%zz", "/%%36d", "/%6d%-1", "/%6d%+1"}) {
    EXPECT_EQ(path(malformed), malformed);
  }
}

TEST(RequestParser, KnowsWhetherTheConnectionStays) {
  const auto keeps = [](const std::string& version, const std::string& header) {
    return parse("GET / HTTP/" + version + "\r\nHost: h\r\n" + header + "\r\n").keep_alive;
  };
  EXPECT_TRUE(keeps("1.1", ""));
  EXPECT_FALSE(keeps("1.1", "Connection: close\r\n"));
  EXPECT_FALSE(keeps("1.1", "Connection: TE , Close\r\n"));
  EXPECT_FALSE(keeps("1.0", ""));
  EXPECT_TRUE(keeps("1.0", "Connection: Keep-Alive\r\n"));
}

TEST(RequestParser, JoinsChunksAndDropsTrailers) {
  const Parsed parsed = parse_both_ways(
      chunked("4\r\nwiki\r\n5;name=value; q=\"x\"\r\npedia\r\n0\r\nX-Late: 1\r\nHost: b\r\n\r\n"));
  ASSERT_TRUE(parsed.done);
  EXPECT_EQ(parsed.request.body, "wikipedia");
  EXPECT_EQ(parsed.request.header("X-Late"), nullptr);
  EXPECT_EQ(parsed.request.headers.size(), 2U);
  EXPECT_TRUE(parse_both_ways(chunked("0\r\n\r\n")).done);
  EXPECT_EQ(parse_both_ways(chunked("00A \r\n0123456789\r\n0\r\n\r\n")).request.body, "0123456789");
}

TEST(RequestParser, RefusesMalformedChunks) {
  for (const char* body :
       {"\r\n", "x\r\n", "-1\r\n", "0x4\r\nwiki\r\n", "4 wiki\r\n", "4\nwiki\r\n",
        "4\r\nwikixx\r\n", "4\r\nwiki\n0\r\n\r\n", "fffffffffffffffff\r\n", "4;a\x01\r\nwiki\r\n",
        "0\r\nA: b\n\r\n", "0\r\nnone\r\n\r\n", "0\r\n: b\r\n\r\n", "0\r\nA : b\r\n\r\n",
        "0\r\nA: b\r\n c\r\n\r\n", "0\r\nA: b\rC: d\r\n\r\n"}) {
    EXPECT_EQ(parse_both_ways(chunked(body)).status, 400) << body;
  }
}

TEST(RequestParser, BoundsWhatSurroundsChunks) {
  const std::string many(RequestParser::kMaxChunkLine, 'x');
  EXPECT_EQ(parse_both_ways(chunked("1;" + many)).status, 400);
  EXPECT_EQ(parse_both_ways(chunked("0\r\nA: " + many)).status, 400);
  std::string trailers;
  for (int i = 0; i < 1000; ++i) trailers += "A: b\r\n";
  EXPECT_EQ(parse_both_ways(chunked("0\r\n" + trailers + "\r\n")).status, 400);
}

TEST(RequestParser, RefusesTwoWaysToReadABody) {
  EXPECT_EQ(parse_both_ways(post("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "")).status,
            400);
  EXPECT_EQ(parse_both_ways(post("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", "")).status,
            400);
  EXPECT_EQ(parse_both_ways(post("Content-Length: 3\r\nContent-Length: 4\r\n", "")).status, 400);
  EXPECT_TRUE(parse_both_ways(post("Content-Length: 3\r\nContent-Length: 3\r\n", "abc")).done);
  for (const char* value : {"", "-1", "+3", "3x", "0x3", "3, 3", "99999999999999999999"}) {
    const std::string header = "Content-Length: " + std::string(value) + "\r\n";
    EXPECT_EQ(parse_both_ways(post(header, "abc")).status, 400) << value;
  }
  for (const char* value : {"gzip", "gzip, chunked", "chunked, gzip", "identity", "xchunked", ""}) {
    const std::string header = "Transfer-Encoding: " + std::string(value) + "\r\n";
    EXPECT_EQ(parse_both_ways(post(header, "0\r\n\r\n")).status, 501) << value;
  }
  EXPECT_EQ(parse_both_ways("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n").status, 400);
  const std::string twice = "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n";
  EXPECT_EQ(parse_both_ways(post(twice, "0\r\n\r\n")).status, 400);
}

TEST(RequestParser, RefusesMalformedHeads) {
  for (const char* head :
       {"GET\r\n", "GET /\r\n", "GET / HTTP/2.0\r\n", "GET / HTTP/1.2\r\n", "GET / http/1.1\r\n",
        "G(T / HTTP/1.1\r\n", "GET / HTTP/1.1\n", " GET / HTTP/1.1\r\n", "\x16\x03\x01\x02",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nnone\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n: none\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\x01\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n"}) {
    EXPECT_EQ(parse_both_ways(head).status, 400) << head;
  }
  EXPECT_EQ(parse_both_ways(post("Content-Encoding: gzip\r\nContent-Length: 1\r\n", "x")).status,
            415);
  EXPECT_EQ(parse_both_ways(post("Expect: magic\r\n", "")).status, 417);
}

TEST(RequestParser, EnforcesLimits) {
  const std::string long_line(1100, 'x');
  EXPECT_EQ(parse_both_ways("GET /" + long_line).status, 431);
  EXPECT_EQ(parse_both_ways("GET / HTTP/1.1\r\nHost: h\r\nA: " + long_line).status, 431);
  std::string fields;
  for (int i = 0; i < 200; ++i) fields += "a:\r\n";
  EXPECT_EQ(parse_both_ways(post(fields, "")).status, 431);  // too many
  std::string sum;
  for (int i = 0; i < 30; ++i) sum += "a: " + std::string(60, 'x') + "\r\n";
  EXPECT_EQ(parse_both_ways(post(sum, "")).status, 431);  // each is short, their sum is not

  EXPECT_TRUE(parse_both_ways(post("Content-Length: 100\r\n", std::string(100, 'x'))).done);
  EXPECT_EQ(parse_both_ways(post("Content-Length: 101\r\n", "")).status, 413);
  EXPECT_EQ(parse_both_ways(chunked("65\r\n")).status, 413);
  const std::string half = "32\r\n" + std::string(50, 'x') + "\r\n";
  EXPECT_TRUE(parse_both_ways(chunked(half + half + "0\r\n\r\n")).done);
  EXPECT_EQ(parse_both_ways(chunked(half + half + "1\r\n")).status, 413);
  EXPECT_EQ(parse_both_ways(chunked("ffffffffffffffff\r\n")).status, 413);
}

// Each move copies the body on the event loop, which other clients wait for.
TEST(RequestParser, ALongBodyIsMovedOnlyWhileItIsShort) {
  constexpr std::size_t kLength = 8 << 20;
  RequestParser parser({.header_bytes = 1024, .body_bytes = kLength});
  std::string head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 8388608\r\n\r\n";
  ASSERT_EQ(parser.put(head).event, RequestParser::Event::kHead);
  EXPECT_LT(parser.request().body.capacity(), std::size_t{1} << 16) << "the length alone is free";
  const std::string piece(16 << 10, 'x');
  const char* place = nullptr;
  for (std::size_t given = 0; given < kLength; given += piece.size()) {
    parser.put(piece);
    if (given < 2 << 16) place = parser.request().body.data();
    EXPECT_EQ(parser.request().body.data(), place);
  }
  EXPECT_EQ(parser.request().body.size(), kLength);
}

TEST(RequestParser, SaysWhatIsWrong) {
  EXPECT_THAT(parse(post("Content-Length: 101\r\n", "")).message, HasSubstr("101 bytes"));
  EXPECT_THAT(parse("\x16\x03\x01").message, HasSubstr("plain HTTP"));
  EXPECT_THAT(parse(post("X-Bad: a\x02\r\n", "")).message, HasSubstr("X-Bad"));
}

}  // namespace
}  // namespace sluice::http
