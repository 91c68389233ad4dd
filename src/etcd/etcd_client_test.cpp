// Several members of an etcd, over TCP.
#include "etcd/etcd_client.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "etcd/ask_etcd.h"
#include "http/http_server.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kDead = "http://127.0.0.1:1";  // nothing listens there

// A member; its loop has a thread of its own. Each answer has the member's name.
class Member final : private http::Handler {
 public:
  enum class Mode { kAnswers, kHasNoLeader, kRefuses, kSilent, kEnds };

  explicit Member(std::string name) : name_(std::move(name)) {
    server_ = *http::HttpServer::listen(loop_, "127.0.0.1", 0, {}, *this, clock_);
    url_ = fmt::format("http://127.0.0.1:{}", server_->port());
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~Member() override { stop(); }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  // It dies: connections end, and new ones are refused.
  void stop() {
    if (!thread_.joinable()) return;
    loop_.stop();
    thread_.join();
    held_.clear();
    server_.reset();
  }

  const std::string& url() const { return url_; }

  std::atomic<Mode> mode = Mode::kAnswers;
  std::atomic<int> calls = 0;

 private:
  std::optional<http::Response> admit(const http::Request&) override { return std::nullopt; }
  http::Response refusal(const http::Request&, int status, std::string message) override {
    return {status, "text/plain", {}, std::move(message)};
  }
  void handle(std::shared_ptr<http::Exchange> exchange) override {  // shared as every exchange is
    ++calls;
    switch (mode) {
      case Mode::kAnswers: return exchange->respond({200, "application/json", {}, name_});
      case Mode::kHasNoLeader:
        return exchange->respond(
            {503, "application/json", {}, R"({"message":"etcdserver: no leader"})"});
      case Mode::kRefuses:
        return exchange->respond({400, "application/json", {}, R"({"message":"bad key"})"});
      case Mode::kSilent: held_.push_back(std::move(exchange)); return;
      case Mode::kEnds: return exchange->abort();
    }
  }

  const std::string name_;
  SystemClock clock_;
  http::EventLoop loop_;
  std::unique_ptr<http::HttpServer> server_;
  std::string url_;
  std::thread thread_;
  std::vector<std::shared_ptr<http::Exchange>> held_;  // shared as every exchange is
};

std::unique_ptr<EtcdMembers> members_at(const std::vector<std::string>& urls) {
  return std::make_unique<EtcdMembers>(*EtcdMembers::parse(urls));
}

// Calls of one client, each of which is waited for.
class Caller {
 public:
  explicit Caller(const std::vector<std::string>& urls)
      : members_(members_at(urls)), client_(*EtcdClient::open(loop_, *members_)) {}

  Result<std::string> call() {
    std::optional<Result<std::string>> result;
    client_->call({"/v3/kv/range", "{}"}, [&](Result<std::string> body) {
      result = std::move(body);
      loop_.stop();
    });
    EXPECT_FALSE(result);
    loop_.run();
    return *std::move(result);
  }

 private:
  http::EventLoop loop_;
  const std::unique_ptr<EtcdMembers> members_;
  const std::unique_ptr<EtcdClient> client_;
};

TEST(EtcdMembers, AreAddressesByHttpOrHttps) {
  const auto urls = EtcdMembers::parse({"http://a:1", "https://b:2"});
  ASSERT_TRUE(urls.has_value());
  EXPECT_EQ((*urls)[1].host, "b");
  for (const char* wrong : {"", "a:1", "unix:/run/etcd", "http://a:1,http://b:2"}) {
    const auto refused = EtcdMembers::parse({"http://a:1", wrong});
    ASSERT_FALSE(refused.has_value()) << wrong;
    EXPECT_THAT(refused.error().message, HasSubstr(fmt::format("'{}'", wrong)));
  }
}

TEST(EtcdMembers, AreUsedInTurnWhenTheyFail) {
  EtcdMembers members(*EtcdMembers::parse({"http://a:1", "http://b:2"}));
  EXPECT_EQ(members.current(), 0U);
  members.failed(0, "a: silent");
  members.failed(0, "a: an earlier call");
  EXPECT_EQ(members.current(), 1U);
  members.answered(1);
  members.failed(1, "b: silent");
  EXPECT_EQ(members.current(), 0U);
}

TEST(EtcdMembers, AreNamedInTheLogAndNotAgainWhileNoneAnswers) {
  EtcdMembers members(*EtcdMembers::parse({"http://a:1", "http://b:2"}));
  testing::internal::CaptureStderr();
  for (int i = 0; i < 10; ++i) members.failed(members.current(), fmt::format("cause {}", i));
  members.answered(members.current());
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, AllOf(HasSubstr("cause 0; trying the member at b port 2"), HasSubstr("cause 1"),
                         HasSubstr("the member at a port 1 answers")));
  EXPECT_THAT(log, testing::Not(HasSubstr("cause 2")));
}

TEST(EtcdClient, GoesOnToTheNextMemberWithTheNextCall) {
  Member second("second");
  Caller caller({kDead, second.url()});
  const auto failed = caller.call();
  ASSERT_FALSE(failed.has_value());
  EXPECT_THAT(failed.error().message, HasSubstr("127.0.0.1 port 1"));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(*caller.call(), "second");
}

// A member that has had the call may have done it, so that no other one gets it.
TEST(EtcdClient, SendsACallOnce) {
  for (const auto mode : {Member::Mode::kHasNoLeader, Member::Mode::kSilent, Member::Mode::kEnds}) {
    Member first("first");
    Member second("second");
    Caller caller({first.url(), second.url()});
    EXPECT_EQ(*caller.call(), "first");
    first.mode = mode;
    EXPECT_FALSE(caller.call().has_value());
    EXPECT_EQ(second.calls, 0);
    EXPECT_EQ(*caller.call(), "second");
    first.mode = Member::Mode::kAnswers;
    EXPECT_EQ(*caller.call(), "second") << "it stays where it is";
  }
}

TEST(EtcdClient, LeavesAMemberThatDiesAndComesBackWhenTheOtherOneDies) {
  auto first = std::make_unique<Member>("first");
  Member second("second");
  Member third("third");
  Caller caller({first->url(), second.url(), third.url()});
  EXPECT_EQ(*caller.call(), "first");
  first->stop();
  EXPECT_FALSE(caller.call().has_value());
  EXPECT_EQ(*caller.call(), "second");
  second.stop();
  EXPECT_FALSE(caller.call().has_value());
  EXPECT_EQ(*caller.call(), "third");
}

TEST(EtcdClient, StaysWithAMemberThatRefusesACall) {
  Member first("first");
  Member second("second");
  Caller caller({first.url(), second.url()});
  first.mode = Member::Mode::kRefuses;
  EXPECT_THAT(caller.call().error().message, HasSubstr("bad key"));
  first.mode = Member::Mode::kAnswers;
  EXPECT_EQ(*caller.call(), "first");
}

TEST(EtcdClient, PassesOverAHostThatIsNotFound) {
  Member second("second");
  Caller caller({"http://no-such-host.invalid:1", second.url()});
  EXPECT_EQ(*caller.call(), "second");
  http::EventLoop loop;
  const auto members = members_at({"http://no-such-host.invalid:1"});
  const auto none = EtcdClient::open(loop, *members);
  ASSERT_FALSE(none.has_value());
  EXPECT_THAT(none.error().message, HasSubstr("no-such-host.invalid"));
}

TEST(AskEtcd, AsksEachMemberUntilOneAnswers) {
  Member silent("silent");
  Member leaderless("leaderless");
  Member last("last");
  silent.mode = Member::Mode::kSilent;
  leaderless.mode = Member::Mode::kHasNoLeader;
  const auto members = members_at({kDead, silent.url(), leaderless.url(), last.url()});
  EXPECT_EQ(*ask_etcd(*members, {"/v3/kv/range", "{}"}), "last");
  EXPECT_EQ(*ask_etcd(*members, {"/v3/kv/range", "{}"}), "last");
  EXPECT_EQ(silent.calls, 1) << "later calls go to the one that answers";
}

TEST(AskEtcd, NamesAllMembersThatDoNotAnswer) {
  Member leaderless("leaderless");
  leaderless.mode = Member::Mode::kHasNoLeader;
  const auto members = members_at({kDead, leaderless.url()});
  const auto failed = ask_etcd(*members, {"/v3/kv/range", "{}"});
  ASSERT_FALSE(failed.has_value());
  EXPECT_THAT(failed.error().message, AllOf(HasSubstr("127.0.0.1 port 1: "), HasSubstr("no leader"),
                                            HasSubstr(leaderless.url().substr(17))));
}

TEST(AskEtcd, DoesNotAskTheNextMemberWhenACallIsRefused) {
  Member first("first");
  Member second("second");
  first.mode = Member::Mode::kRefuses;
  const auto members = members_at({first.url(), second.url()});
  EXPECT_THAT(ask_etcd(*members, {"/v3/kv/put", "{}"}).error().message, HasSubstr("bad key"));
  EXPECT_EQ(second.calls, 0);
}

}  // namespace
}  // namespace sluice
