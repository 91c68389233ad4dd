// Requests and answers as clients see them. Clients that misbehave: http_server_hostile_test.cpp.
#include "http/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "http/test_client.h"
#include "http/test_server.h"

namespace sluice::http {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string get(std::string_view path, std::string_view headers = {}) {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: h\r\n" + std::string(headers) + "\r\n";
}

std::string post(std::string_view path, std::string_view body, std::string_view headers = {}) {
  return "POST " + std::string(path) +
         " HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
         std::string(headers) + "\r\n" + std::string(body);
}

TEST(HttpServer, KeepsTheConnectionBetweenRequests) {
  TestServer server;
  TestClient client(server.port());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.send(post("/echo?a=" + std::to_string(i), "body")));
    const auto answer = client.answer();
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status, 200);
    EXPECT_EQ(answer->body, "POST /echo?a=" + std::to_string(i) + "\nbody");
    EXPECT_TRUE(answer->has_header("Content-Type: text/plain"));
    EXPECT_THAT(answer->head, Not(HasSubstr("Connection:")));
    EXPECT_THAT(answer->head, HasSubstr("\r\nDate: "));
    EXPECT_THAT(answer->head, HasSubstr("GMT\r\n"));
    EXPECT_THAT(answer->head, HasSubstr("X-Peer: 127.0.0.1:"));
  }
  EXPECT_EQ(server.stats().accepted, 1);
}

TEST(HttpServer, ClosesWhenAskedTo) {
  TestServer server;
  TestClient client(server.port());
  client.send(get("/echo", "Connection: close\r\n"));
  const auto answer = client.answer();
  ASSERT_TRUE(answer);
  EXPECT_TRUE(answer->has_header("Connection: close"));
  EXPECT_EQ(client.rest(), "");
  EXPECT_TRUE(server.wait_for_connections(0));
}

TEST(HttpServer, AnswersPipelinedRequestsInOrder) {
  TestServer server;
  TestClient client(server.port());
  std::string all;
  for (int i = 0; i < 500; ++i) all += post("/echo", std::to_string(i)) + "\r\n";  // blank lines
  client.send(all);
  for (int i = 0; i < 500; ++i) {
    const auto answer = client.answer();
    ASSERT_TRUE(answer) << i;
    EXPECT_EQ(answer->body, "POST /echo?\n" + std::to_string(i));
  }
}

TEST(HttpServer, LaterRequestsWaitForTheAnswerBefore) {
  TestServer server;
  TestClient client(server.port());
  client.send(get("/hold") + get("/echo"));
  const auto exchange = server.held();
  ASSERT_NE(exchange, nullptr);
  // More than is kept while waiting; the rest stays in the system's buffers.
  std::string more;
  for (int i = 0; i < 5000; ++i) more += get("/none");
  ASSERT_GT(more.size(), 2U * (64 << 10));
  client.send(more);
  EXPECT_EQ(server.handled(), 1);
  server.on_loop([&] { exchange->respond({200, "text/plain", {}, "first"}); });
  EXPECT_EQ(client.answer()->body, "first");
  EXPECT_EQ(client.answer()->body, "GET /echo?\n");
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(client.answer()->status, 204) << i;
}

TEST(HttpServer, TakesChunkedBodies) {
  TestServer server;
  TestClient client(server.port());
  client.send("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4;e=1\r\nwi");
  client.send("ki\r\n5\r\npedia\r\n0\r\n\r\n");
  EXPECT_EQ(client.answer()->body, "POST /echo?\nwikipedia");
  client.send("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
  EXPECT_EQ(client.answer()->status, 400);
  EXPECT_TRUE(client.closed());
}

TEST(HttpServer, StreamsInChunks) {
  TestServer server;
  TestClient client(server.port());
  client.send(get("/stream") + get("/echo"));
  const auto answer = client.answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->body, "one two three");
  EXPECT_EQ(answer->chunks, 3U);
  EXPECT_TRUE(answer->has_header("Content-Type: text/event-stream"));
  EXPECT_EQ(client.answer()->body, "GET /echo?\n");  // the connection goes on
}

TEST(HttpServer, EachWriteArrivesAtOnce) {
  TestServer server;
  TestClient client(server.port());
  client.send(get("/hold"));
  const auto exchange = server.held();
  ASSERT_NE(exchange, nullptr);
  server.on_loop([&] { exchange->begin_stream({200, "text/event-stream", {}, ""}); });
  EXPECT_TRUE(client.wait_for("\r\n\r\n"));
  for (const std::string text : {"alpha", "beta"}) {
    server.on_loop([&] { exchange->write(text); });
    EXPECT_TRUE(client.wait_for(text + "\r\n"));
  }
  std::int64_t sent = 0;
  server.on_loop([&] {
    exchange->write("");  // would end the stream if it became a chunk
    EXPECT_EQ(exchange->unsent_bytes(), 0U);
    exchange->end_stream();
    sent = exchange->bytes_sent();
    EXPECT_FALSE(exchange->closed());
  });
  const auto answer = client.answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->body, "alphabeta");
  EXPECT_EQ(sent, static_cast<std::int64_t>(answer->head.size() + 5 + 5 + 5 + 4 + 5));
}

TEST(HttpServer, SpeaksHttp10) {
  TestServer server;
  {
    TestClient client(server.port());
    client.send("GET /echo HTTP/1.0\r\n\r\n");
    const auto answer = client.answer();
    ASSERT_TRUE(answer);
    EXPECT_TRUE(answer->has_header("Connection: close"));
    EXPECT_EQ(client.rest(), "");
  }
  {
    TestClient client(server.port());
    client.send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    const auto answer = client.answer();
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->body, "one two three");  // to the connection's end
    EXPECT_THAT(answer->head, Not(HasSubstr("chunked")));
  }
  TestClient client(server.port());
  for (int i = 0; i < 2; ++i) {
    client.send("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    const auto answer = client.answer();
    ASSERT_TRUE(answer);
    EXPECT_TRUE(answer->has_header("Connection: keep-alive"));
  }
}

TEST(HttpServer, AnswersHeadWithoutBody) {
  TestServer server;
  TestClient client(server.port());
  client.send("HEAD /echo HTTP/1.1\r\nHost: h\r\n\r\n" + get("/none"));
  const auto head = client.answer(true);
  ASSERT_TRUE(head);
  EXPECT_TRUE(head->has_header("Content-Length: 12"));
  const auto none = client.answer();
  ASSERT_TRUE(none);
  EXPECT_EQ(none->status, 204);
  EXPECT_THAT(none->head, Not(HasSubstr("Content-")));
  client.send("HEAD /stream HTTP/1.1\r\nHost: h\r\n\r\n" + get("/echo"));
  EXPECT_TRUE(client.answer(true)->has_header("Transfer-Encoding: chunked"));
  EXPECT_EQ(client.answer()->body, "GET /echo?\n");
}

TEST(HttpServer, RefusesBeforeTheBodyIsSent) {
  TestServer server;
  TestClient client(server.port());
  client.send(get("/refused"));  // without a body the connection can go on
  EXPECT_EQ(client.answer()->status, 401);
  client.send(
      "POST /refused HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n"
      "Expect: 100-continue\r\n\r\n");
  const auto answer = client.answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 401);
  EXPECT_EQ(answer->body, "no key");
  EXPECT_TRUE(answer->has_header("Connection: close"));
  EXPECT_TRUE(client.closed());
  EXPECT_EQ(server.handled(), 0);
}

TEST(HttpServer, SaysContinueToThoseWhoAsk) {
  TestServer server;
  TestClient client(server.port());
  client.send(
      "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n"
      "Expect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.answer()->status, 100);
  client.send("body");
  EXPECT_EQ(client.answer()->body, "POST /echo?\nbody");
}

TEST(HttpServer, HeaderValuesCannotBeginHeaders) {
  TestServer server;
  TestClient client(server.port());
  client.send(get("/hold"));
  const auto exchange = server.held();
  ASSERT_NE(exchange, nullptr);
  server.on_loop(
      [&] { exchange->respond({200, "text/plain", {{"X-Id", "1\r\nX-Evil: 2"}}, "ok"}); });
  const auto answer = client.answer();
  ASSERT_TRUE(answer);
  EXPECT_THAT(answer->head, Not(HasSubstr("\nX-Evil")));
  EXPECT_EQ(answer->body, "ok");
}

TEST(HttpServer, AForgottenRequestIsAnswered500) {
  TestServer server;
  TestClient client(server.port());
  client.send(get("/drop"));
  EXPECT_EQ(client.answer()->status, 500);
  EXPECT_TRUE(client.closed());
  TestClient streaming(server.port());
  streaming.send(get("/hold"));
  auto exchange = server.held();
  ASSERT_NE(exchange, nullptr);
  server.on_loop([&] {
    exchange->begin_stream({200, "text/plain", {}, ""});
    exchange.reset();
  });
  server.release_held();
  EXPECT_TRUE(streaming.closed());
}

TEST(HttpServer, SendsLargeAnswersWhole) {
  TestServer server;
  TestClient client(server.port());
  client.send(get("/large") + get("/echo"));
  const auto answer = client.answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->body.size(), 8U << 20);
  EXPECT_EQ(client.answer()->body, "GET /echo?\n");
  // A client that has said all it will say still gets what is already answered.
  TestClient half(server.port(), 4096);
  half.send(get("/large"));
  ASSERT_TRUE(half.wait_for("\r\n\r\n"));
  half.shutdown_send();
  const auto rest = half.answer();
  ASSERT_TRUE(rest);
  EXPECT_EQ(rest->body.size(), 8U << 20);
}

TEST(HttpServer, DrainsAnswersInProgress) {
  TestServer server;
  TestClient idle(server.port());
  auto busy = std::make_unique<TestClient>(server.port());
  TestClient coming(server.port());
  busy->send(get("/hold") + get("/echo"));
  coming.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbo");
  const auto exchange = server.held();
  ASSERT_NE(exchange, nullptr);
  ASSERT_TRUE(server.wait_for_connections(3));
  server.on_loop([&] { server.server().drain(); });
  EXPECT_TRUE(idle.closed());
  EXPECT_FALSE(TestClient(server.port()).connected());
  coming.send("dy");
  EXPECT_TRUE(coming.answer()->has_header("Connection: close"));
  server.on_loop([&] { exchange->respond({200, "text/plain", {}, "last"}); });
  const auto answer = busy->answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->body, "last");
  EXPECT_TRUE(answer->has_header("Connection: close"));
  EXPECT_EQ(busy->rest(), "");  // the second request is not begun
  busy.reset();
  EXPECT_TRUE(server.wait_for_connections(0));
}

TEST(HttpServer, CloseAllTellsTheHandler) {
  TestServer server;
  TestClient idle(server.port());
  TestClient busy(server.port());
  busy.send(get("/hold"));
  const auto exchange = server.held();
  ASSERT_NE(exchange, nullptr);
  server.on_loop([&] {
    server.server().close_all();
    EXPECT_TRUE(exchange->closed());
    exchange->respond({200, "text/plain", {}, "nobody hears it"});
  });
  EXPECT_EQ(server.close_reason(), CloseReason::kServerStop);
  EXPECT_TRUE(idle.closed());
  EXPECT_EQ(busy.rest(), "");
  EXPECT_EQ(server.stats().open_connections, 0);
}

TEST(HttpServer, ExchangesMayOutliveTheServer) {
  std::shared_ptr<Exchange> exchange;
  {
    TestServer server;
    TestClient client(server.port());
    client.send(post("/hold", "body"));
    exchange = server.held();
    ASSERT_NE(exchange, nullptr);
  }
  EXPECT_TRUE(exchange->closed());
  EXPECT_EQ(exchange->request().body, "body");
  exchange->respond({200, "text/plain", {}, "late"});
  EXPECT_EQ(exchange->bytes_sent(), 0);
}

TEST(HttpServer, ListensByAddressAndName) {
  EventLoop loop;
  TestServer first;  // for its Handler's sake only a real server would do; its port is taken
  class Silent final : public Handler {
    std::optional<Response> admit(const Request&) override { return Response{}; }
    void handle(std::shared_ptr<Exchange>) override {}
    Response refusal(const Request&, int status, std::string) override {
      return {status, "", {}, ""};
    }
  } handler;
  const SystemClock clock;
  const auto listen = [&](const std::string& host, std::uint16_t port) {
    return HttpServer::listen(loop, host, port, {}, handler, clock);
  };
  EXPECT_TRUE(listen("localhost", 0).has_value());
  EXPECT_TRUE(listen("0.0.0.0", 0).has_value());
  const auto taken = listen("127.0.0.1", first.port());
  ASSERT_FALSE(taken.has_value());
  EXPECT_THAT(taken.error().message, HasSubstr("127.0.0.1 port " + std::to_string(first.port())));
  EXPECT_THAT(taken.error().message, HasSubstr("in use"));
  EXPECT_FALSE(listen("", 0).has_value());
  const auto foreign = listen("192.0.2.1", 0);  // reserved for documentation: no machine has it
  ASSERT_FALSE(foreign.has_value());
  EXPECT_THAT(foreign.error().message, HasSubstr("192.0.2.1"));
}

TEST(Message, HasReasonPhrases) {
  EXPECT_EQ(reason_phrase(404), "Not Found");
  EXPECT_EQ(reason_phrase(299), "Unknown");
}

}  // namespace
}  // namespace sluice::http
