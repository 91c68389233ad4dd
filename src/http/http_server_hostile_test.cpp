// Clients that go, stall, flood or break the protocol, and what each may cost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "http/connection.h"
#include "http/http_server.h"
#include "http/open_files.h"
#include "http/test_client.h"
#include "http/test_server.h"
#include "tests/support/sanitized.h"

namespace sluice::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

std::string get(std::string_view path) {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: h\r\n\r\n";
}

std::string post_head(std::size_t length) {
  return "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(length) + "\r\n\r\n";
}

// That the server is alive and serves others.
void expect_served(TestServer& server) {
  TestClient client(server.port());
  ASSERT_TRUE(client.send(get("/echo")));
  const auto answer = client.answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
}

void expect_refused(TestServer& server, std::string_view request, int status) {
  TestClient client(server.port());
  client.send(request);
  const auto answer = client.answer();
  ASSERT_TRUE(answer) << request.substr(0, 60);
  EXPECT_EQ(answer->status, status) << request.substr(0, 60);
  EXPECT_TRUE(answer->has_header("Connection: close"));
  EXPECT_TRUE(client.closed());
  expect_served(server);
}

TEST(HttpServerHostile, TellsTheHandlerWhenTheClientGoes) {
  TestServer server;
  auto waiting = std::make_unique<TestClient>(server.port());
  waiting->send(get("/hold"));
  ASSERT_NE(server.held(0), nullptr);
  waiting.reset();  // the handler is still computing
  EXPECT_EQ(server.close_reason(0), CloseReason::kPeerGone);

  TestClient reset(server.port());
  reset.send(get("/hold"));
  ASSERT_NE(server.held(1), nullptr);
  reset.reset();
  EXPECT_EQ(server.close_reason(1), CloseReason::kPeerGone);

  TestClient half(server.port());
  half.send(get("/hold") + get("/echo"));
  ASSERT_NE(server.held(2), nullptr);
  half.shutdown_send();
  EXPECT_EQ(server.close_reason(2), CloseReason::kPeerGone);

  TestClient streaming(server.port());
  streaming.send(get("/hold"));
  const auto exchange = server.held(3);
  ASSERT_NE(exchange, nullptr);
  server.on_loop([&] {
    exchange->begin_stream({200, "text/plain", {}, ""});
    exchange->write("some");
  });
  ASSERT_TRUE(streaming.wait_for("some"));
  streaming.reset();
  EXPECT_EQ(server.close_reason(3), CloseReason::kPeerGone);
  server.on_loop([&] {
    EXPECT_TRUE(exchange->closed());
    exchange->write("more");
    exchange->end_stream();
    EXPECT_EQ(exchange->unsent_bytes(), 0U);
  });
  EXPECT_TRUE(server.wait_for_connections(0));
}

TEST(HttpServerHostile, OnCloseMayBeAskedForTooLate) {
  TestServer server;
  auto client = std::make_unique<TestClient>(server.port());
  client->send(get("/hold"));
  const auto exchange = server.held();
  ASSERT_NE(exchange, nullptr);
  client.reset();
  ASSERT_TRUE(server.close_reason());
  int calls = 0;
  server.on_loop([&] {
    exchange->on_close([&](CloseReason) { ++calls; });
    EXPECT_EQ(calls, 0);  // never from inside
  });
  server.on_loop([] {});
  EXPECT_EQ(calls, 1);
}

TEST(HttpServerHostile, SentAnswersAreNotReportedAsClosed) {
  TestServer server;
  int calls = 0;
  {
    TestClient client(server.port());
    client.send(get("/hold"));
    const auto exchange = server.held();
    ASSERT_NE(exchange, nullptr);
    server.on_loop([&] {
      exchange->on_close([&](CloseReason) { ++calls; });
      exchange->respond({200, "text/plain", {}, "ok"});
    });
    EXPECT_EQ(client.answer()->body, "ok");
  }
  EXPECT_TRUE(server.wait_for_connections(0));
  server.on_loop([] {});
  EXPECT_EQ(calls, 0);
}

TEST(HttpServerHostile, SlowReadersCostWhatTheHandlerAllows) {
  HttpLimits limits;
  limits.write_timeout = milliseconds(300);
  TestServer server(limits);
  TestClient client(server.port(), 4096);
  client.send(get("/hold"));
  const auto exchange = server.held();
  ASSERT_NE(exchange, nullptr);
  const std::string piece(64 << 10, 'x');
  std::size_t unsent = 0;
  server.on_loop([&] {
    exchange->begin_stream({200, "text/plain", {}, ""});
    for (int i = 0; i < 64; ++i) exchange->write(piece);
    unsent = exchange->unsent_bytes();
    EXPECT_GE(exchange->bytes_sent() + static_cast<std::int64_t>(unsent), 64 * (64 << 10));
  });
  EXPECT_GT(unsent, 3U << 20);  // the system takes some of it
  expect_served(server);        // other clients do not wait for the slow one
  EXPECT_EQ(server.close_reason(), CloseReason::kWriteTimeout);
  EXPECT_TRUE(server.wait_for_connections(0));
}

TEST(HttpServerHostile, SlowButSteadyReadersAreServed) {
  HttpLimits limits;
  limits.write_timeout = milliseconds(300);
  TestServer server(limits);
  TestClient client(server.port(), 32 << 10);
  client.send(get("/hold"));
  const auto exchange = server.held();
  ASSERT_NE(exchange, nullptr);
  const std::string piece(1 << 20, 'x');
  server.on_loop([&] {
    exchange->begin_stream({200, "text/plain", {}, ""});
    exchange->write(piece);
    exchange->write(piece);
    exchange->end_stream();
  });
  const auto answer = client.answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->body, piece + piece);
}

TEST(HttpServerHostile, AbortEndsTheConnectionAndIsNotReported) {
  TestServer server;
  TestClient client(server.port());
  client.send(get("/hold"));
  const auto exchange = server.held();
  ASSERT_NE(exchange, nullptr);
  int calls = 0;
  server.on_loop([&] {
    exchange->on_close([&](CloseReason) { ++calls; });
    exchange->begin_stream({200, "text/plain", {}, ""});
    exchange->abort();
    EXPECT_TRUE(exchange->closed());
    exchange->abort();
  });
  EXPECT_TRUE(client.closed());
  server.on_loop([] {});
  EXPECT_EQ(calls, 0);
}

// Requests come faster than they are answered, and each is answered before the next is looked at.
TEST(HttpServerHostile, AFloodOfRequestsWaitsOutside) {
  constexpr int kRequests = 8192;
  TestServer server;
  TestClient client(server.port());
  const std::string request = get("/none?" + std::string(1000, 'x'));  // longer than its answer
  std::string many;
  for (int i = 0; i < 64; ++i) many += request;
  std::thread sender([&] {
    for (int i = 0; i < kRequests; i += 64) client.send(many);
  });
  std::atomic<int> answered{0};
  std::thread reader([&] {
    while (answered < kRequests && client.answer()) ++answered;
    if (answered < kRequests) client.shutdown_send();  // so that the sender ends too
  });
  std::size_t most = 0;
  EXPECT_TRUE(server.wait_for_connections(1));
  while (server.handled() < kRequests && server.stats().open_connections == 1) {
    most = std::max(most, server.stats().waiting_bytes);
  }
  reader.join();
  sender.join();
  EXPECT_EQ(answered, kRequests);
  // The full buffer, and one more read for a request of which only a piece was there.
  EXPECT_LE(most, Connection::kMaxPipelined + (64U << 10));
  EXPECT_GT(most, 0U);
}

// Blank lines in front of a request are skipped, but the time for headers counts from the second.
TEST(HttpServerHostile, ADripOfBlankLinesDoesNotOutliveTheHeaderTimeout) {
  HttpLimits limits;
  limits.header_timeout = milliseconds(200);
  limits.idle_timeout = seconds(60);
  TestServer server(limits);
  TestClient drip(server.port());
  TestClient half_line(server.port());
  TestClient one_line(server.port());
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(half_line.send("\r\n\r"));
  ASSERT_TRUE(one_line.send("\r\n"));
  while (drip.send("\r\n") && !drip.readable_now()) {
    ASSERT_LT(std::chrono::steady_clock::now() - start, limits.idle_timeout);
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_EQ(drip.answer()->status, 408);
  EXPECT_EQ(half_line.answer()->status, 408);
  // Some clients send one after a body and then nothing for long.
  EXPECT_TRUE(one_line.send(get("/echo")));
  EXPECT_EQ(one_line.answer()->status, 200);
}

TEST(HttpServerHostile, EveryConnectionOverTheLimitIsTold) {
  HttpLimits limits;
  limits.max_connections = 1;
  TestServer server(limits);
  TestClient first(server.port());
  ASSERT_TRUE(first.send(get("/hold")));
  ASSERT_TRUE(server.held());
  std::vector<TestClient> late;  // more than are told at the same time
  for (int i = 0; i < 400; ++i) {
    late.emplace_back(server.port());
    late.back().send(get("/echo"));
  }
  for (TestClient& client : late) {
    const auto answer = client.answer();
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status, 503);
    client.reset();
  }
  server.release_held();
  ASSERT_TRUE(first.answer());
  EXPECT_EQ(server.stats().closed_idle, 0);
}

TEST(HttpServerHostile, TimesOutEveryPart) {
  HttpLimits limits;
  limits.header_timeout = milliseconds(400);
  limits.body_timeout = milliseconds(450);
  limits.idle_timeout = milliseconds(350);
  TestServer server(limits);
  // Each says what it says at once: the machine may do other things for a while.
  TestClient between(server.port());
  between.send(get("/echo"));
  TestClient slow_head(server.port());
  slow_head.send("GET / HTTP/1.1\r\nHo");
  TestClient slow_body(server.port());
  slow_body.send(post_head(10) + "12345");
  TestClient slow_chunks(server.port());
  slow_chunks.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n");
  TestClient silent(server.port());
  EXPECT_EQ(between.answer()->status, 200);
  // Bytes now and then do not extend the time.
  slow_head.send("st: h\r\nX-Slow: ");
  for (int i = 0; i < 6000 && !slow_head.readable_now(); ++i) {
    slow_head.send("x");
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_TRUE(slow_head.readable_now());
  EXPECT_EQ(silent.rest(), "");
  EXPECT_EQ(between.rest(), "");
  EXPECT_EQ(slow_head.answer()->status, 408);
  EXPECT_EQ(slow_body.answer()->status, 408);
  EXPECT_EQ(slow_chunks.answer()->status, 408);
  EXPECT_EQ(server.handled(), 1);
}

TEST(HttpServerHostile, RequestsBeingAnsweredHaveNoTimeOut) {
  HttpLimits limits;
  limits.header_timeout = limits.body_timeout = limits.idle_timeout = limits.write_timeout =
      milliseconds(200);
  TestServer server(limits);
  TestClient client(server.port());
  client.send(get("/hold"));
  const auto exchange = server.held();
  ASSERT_NE(exchange, nullptr);
  std::this_thread::sleep_for(milliseconds(500));
  server.on_loop([&] { exchange->respond({200, "text/plain", {}, "late"}); });
  EXPECT_EQ(client.answer()->body, "late");
}

TEST(HttpServerHostile, RefusesWhatIsTooLong) {
  HttpLimits limits;
  limits.body_bytes = 1 << 20;
  TestServer server(limits);
  expect_refused(server, "GET /" + std::string(1 << 20, 'a') + " HTTP/1.1\r\n\r\n", 431);
  expect_refused(server, "GET / HTTP/1.1\r\nHost: h\r\nX-Long: " + std::string(1 << 20, 'a'), 431);
  // The client sends all of its body before it reads; it must still see why not.
  expect_refused(server, post_head(2 << 20) + std::string(2 << 20, 'x'), 413);
  expect_refused(server,
                 "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n200000\r\n" +
                     std::string(1 << 20, 'x'),
                 413);
}

TEST(HttpServerHostile, RefusesWhatItDoesNotUnderstand) {
  TestServer server;
  expect_refused(server, "\x16\x03\x01\x02\x01", 400);              // TLS
  expect_refused(server, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400);  // HTTP/2
  expect_refused(server, "GET / HTTP/1.1\r\n\r\n", 400);            // no Host
  expect_refused(server, "GET / HTTP/1.1\nHost: h\n\n", 400);       // bare line feeds
  expect_refused(server,
                 "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n"
                 "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
                 400);
  expect_refused(server, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n", 501);
  expect_refused(server,
                 "POST / HTTP/1.1\r\nHost: h\r\nContent-Encoding: br\r\nContent-Length: 1\r\n\r\nx",
                 415);
}

// Room for one whole body and half of another.
HttpLimits few_bodies() {
  HttpLimits limits;
  limits.body_bytes = 1000;
  limits.total_body_bytes = 1500;
  limits.fair_body_bytes = 0;
  return limits;
}

const std::string kHeldBody =
    "POST /hold HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n" + std::string(1000, 'x');

TEST(HttpServerHostile, BoundsAllBodiesTogether) {
  TestServer server(few_bodies());
  TestClient first(server.port());
  first.send(kHeldBody);
  ASSERT_NE(server.held(), nullptr);
  TestClient second(server.port());
  second.send(post_head(600));
  EXPECT_EQ(second.answer()->status, 503);
  // Chunked bodies say no length; they are refused when they come to too much.
  TestClient third(server.port());
  third.send("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n258\r\n" +
             std::string(600, 'x'));
  EXPECT_EQ(third.answer()->status, 503);
  // An answer gives the memory back.
  server.on_loop([exchange = server.held()]() mutable {
    exchange->respond({200, "text/plain", {}, "ok"});
    exchange.reset();
  });
  server.release_held();
  EXPECT_EQ(first.answer()->status, 200);
  TestClient fourth(server.port());
  fourth.send(post_head(1000) + std::string(1000, 'x'));
  EXPECT_EQ(fourth.answer()->status, 200);
}

TEST(HttpServerHostile, AShortBodyIsReadEvenSo) {
  HttpLimits limits = few_bodies();
  limits.total_body_bytes = 1000;
  limits.fair_body_bytes = 100;
  TestServer server(limits);
  TestClient hog(server.port());
  hog.send(kHeldBody);
  ASSERT_NE(server.held(), nullptr);
  TestClient client(server.port());
  client.send(post_head(100) + std::string(100, 'x'));
  EXPECT_EQ(client.answer()->status, 200);
  client.send("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n" +
              std::string(100, 'x') + "\r\n0\r\n\r\n");
  EXPECT_EQ(client.answer()->status, 200);
  client.send(post_head(101));
  EXPECT_EQ(client.answer()->status, 503);
}

// Or a few clients with large bodies and long answers would shut everybody else out.
TEST(HttpServerHostile, ABodyThatWasReadCountsNoMore) {
  TestServer server(few_bodies());
  TestClient first(server.port());
  first.send(kHeldBody);
  const auto exchange = server.held();
  ASSERT_NE(exchange, nullptr);
  server.on_loop([&] {
    EXPECT_EQ(exchange->request().body.size(), 1000U);
    exchange->drop_body();
    EXPECT_EQ(exchange->request().body.capacity(), std::string().capacity());
    exchange->drop_body();  // again: nothing
  });
  TestClient second(server.port());
  second.send(post_head(1000) + std::string(1000, 'x'));
  EXPECT_EQ(second.answer()->status, 200);
}

// Eight megabytes each, which no client reads: a few clients must not take all memory.
TEST(HttpServerHostile, BoundsWhatAllClientsLeaveUnread) {
  HttpLimits limits;
  limits.total_unsent_bytes = 12 << 20;
  TestServer server(limits);
  TestClient first(server.port());
  first.send(get("/large"));
  ASSERT_TRUE(first.wait_for("HTTP/1.1 200"));
  TestClient second(server.port());
  second.send(get("/large"));
  const auto cut = second.rest();
  ASSERT_TRUE(cut);
  EXPECT_LT(cut->size(), 4U << 20);
  expect_served(server);  // small answers need no such room
  EXPECT_EQ(first.answer()->body.size(), 8U << 20);
  TestClient third(server.port());
  third.send(get("/large"));
  EXPECT_EQ(third.answer()->body.size(), 8U << 20);
}

// Whatever the loop does in one go holds up all streams.
TEST(HttpServerHostile, ALongAnswerIsNotCopied) {
  TestServer server;
  const auto cpu_now = [] {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  };
  const std::string body(64 << 20, 'x');
  auto least = std::chrono::nanoseconds::max();
  auto copying = std::chrono::nanoseconds::max();
  for (std::size_t i = 0; i < 3; ++i) {
    const auto before = cpu_now();
    const std::string copy = body;
    copying = std::min(copying, cpu_now() - before);
    TestClient client(server.port());
    client.send(get("/hold"));
    const auto exchange = server.held(i);
    ASSERT_NE(exchange, nullptr);
    Response response{200, "text/plain", {}, copy};
    server.on_loop([&] {
      const auto begin = cpu_now();
      exchange->respond(std::move(response));
      least = std::min(least, cpu_now() - begin);
      EXPECT_GT(exchange->unsent_bytes(), 32U << 20);
    });
  }
  EXPECT_LT(2 * least, copying);
}

// So that a log can say who sends what is refused.
TEST(HttpServerHostile, RefusalsKnowWhatWasRead) {
  TestServer server(few_bodies());
  TestClient client(server.port());
  client.send(post_head(2000));
  const auto large = client.answer();
  ASSERT_TRUE(large);
  EXPECT_EQ(large->status, 413);
  EXPECT_TRUE(large->has_header("X-Path: /echo"));
  EXPECT_THAT(large->head, HasSubstr("X-Peer: 127.0.0.1:"));
  TestClient noise(server.port());
  noise.send("\x16\x03\x01");
  const auto refused = noise.answer();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 400);
  EXPECT_THAT(refused->head, HasSubstr("X-Peer: 127.0.0.1:"));
}

TEST(HttpServerHostile, TurnsAwayOneConnectionTooMany) {
  HttpLimits limits;
  limits.max_connections = 2;
  TestServer server(limits);
  TestClient first(server.port());
  auto second = std::make_unique<TestClient>(server.port());
  ASSERT_TRUE(first.send(get("/hold")));
  ASSERT_TRUE(second->send(get("/hold")));
  ASSERT_TRUE(server.held(1));
  TestClient third(server.port());
  third.send(get("/echo"));
  const auto answer = third.answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 503);
  EXPECT_TRUE(answer->has_header("Connection: close"));
  EXPECT_EQ(server.stats().refused, 1);
  EXPECT_EQ(server.stats().open_connections, 2);
  second.reset();
  ASSERT_TRUE(server.wait_for_connections(1));
  TestClient fourth(server.port());
  fourth.send(get("/echo"));
  EXPECT_EQ(fourth.answer()->status, 200);
}

// Clients that say nothing cannot shut out others.
TEST(HttpServerHostile, IdleConnectionsMakeRoom) {
  HttpLimits limits;
  limits.max_connections = 3;
  TestServer server(limits);
  TestClient busy(server.port());
  ASSERT_TRUE(busy.send(get("/hold")));
  ASSERT_TRUE(server.held());
  TestClient used(server.port());
  TestClient unused(server.port());
  ASSERT_TRUE(server.wait_for_connections(3));
  ASSERT_TRUE(used.send(get("/echo")));  // idle for less time than the other one, from now on
  EXPECT_EQ(used.answer()->status, 200);
  TestClient next(server.port());
  ASSERT_TRUE(next.send(get("/echo")));
  EXPECT_EQ(next.answer()->status, 200);
  EXPECT_TRUE(unused.closed());
  ASSERT_TRUE(used.send(get("/echo")));
  EXPECT_EQ(used.answer()->status, 200);
  EXPECT_EQ(server.stats().closed_idle, 1);
  EXPECT_EQ(server.stats().refused, 0);
  EXPECT_EQ(server.stats().open_connections, 3);
  server.release_held();
  EXPECT_TRUE(busy.answer());
}

TEST(HttpServerHostile, SurvivesHavingNoFilesLeft) {
  TestServer server;
  std::vector<TestClient> clients;
  clients.emplace_back(server.port());
  ASSERT_TRUE(server.wait_for_connections(1));
  // The sanitizers open a pipe when they first see a type of object, so the log must be in use
  // before files run out.
  log_warning("a test lets the server run out of files");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  const int next = dup(0);
  ASSERT_GE(next, 0);
  close(next);
  // The client gets the last file, so accepting its connection finds none.
  few.rlim_cur = static_cast<rlim_t>(next) + 1;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  clients.emplace_back(server.port());
  EXPECT_TRUE(clients.back().connected());
  clients.back().send(get("/echo"));
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(server.stats().open_connections, 1);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(clients.back().answer()->status, 200);  // it has waited in the queue
}

// Resident bytes of this process.
std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t total = 0;
  std::size_t resident = 0;
  statm >> total >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

TEST(HttpServerHostile, AThousandConnectionsAreCheap) {
  constexpr int kClients = 1000;
  // Both ends are in this process.
  ASSERT_GE(raise_open_files_limit(), 2 * kClients + 100);
  HttpLimits limits;  // the machine may do other things for long
  limits.header_timeout = limits.idle_timeout = std::chrono::hours(1);
  TestServer server(limits);
  expect_served(server);
  ASSERT_TRUE(server.wait_for_connections(0));
  std::vector<TestClient> clients;
  clients.reserve(kClients);
  const std::size_t before = resident_bytes();
  for (int i = 0; i < kClients; ++i) clients.emplace_back(server.port());
  ASSERT_TRUE(server.wait_for_connections(kClients));
  // Idle after a request, all at the same time.
  for (TestClient& client : clients) ASSERT_TRUE(client.send(get("/echo")));
  for (TestClient& client : clients) ASSERT_EQ(client.answer()->status, 200);
  const std::size_t grown = resident_bytes() - before;
  RecordProperty("bytes_per_connection", static_cast<int>(grown / kClients));
  if (!kSanitized) {  // a sanitizer's shadow memory counts as ours
    EXPECT_LT(grown / kClients, 10U * 1000);
  }
  EXPECT_EQ(server.handled(), kClients + 1);
}

}  // namespace
}  // namespace sluice::http
