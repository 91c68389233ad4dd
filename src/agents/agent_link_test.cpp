// An agent's link to a real hub over TCP, on one event loop.
#include "agents/agent_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agents/agent_hub.h"
#include "agents/hand_machine.h"
#include "http/http_server.h"
#include "tests/support/agent_stream.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

// The hub behind faults.
class FaultyHub final : public http::Handler {
 public:
  explicit FaultyHub(AgentHub& hub) : hub_(hub) {}
  std::optional<http::Response> admit(const http::Request& head) override {
    return hub_.admit(head);
  }
  http::Response refusal(const http::Request& head, int status, std::string message) override {
    return hub_.refusal(head, status, std::move(message));
  }
  void handle(std::shared_ptr<http::Exchange> exchange) override {
    const std::string path = exchange->request().path;
    if (path == "/v1/agents/join") joins.push_back(exchange->request());
    if (is_cut) return exchange->abort();
    if (path == "/v1/agents/listen") stream = exchange;
    if (path == "/v1/agents/report") {
      ++reports;
      if (lost_reports > 0) {
        --lost_reports;
        return exchange->abort();
      }
      if (lost_answers > 0) {
        --lost_answers;
        hub_.handle(std::make_shared<test::FakeExchange>(exchange->request()));
        return exchange->abort();
      }
      if (is_silent) return held.push_back(exchange);
    }
    hub_.handle(std::move(exchange));
  }

  std::vector<http::Request> joins;
  std::shared_ptr<http::Exchange> stream;  // the last one
  int reports = 0;
  int lost_reports = 0;  // before they arrive
  int lost_answers = 0;
  bool is_silent = false;  // reports get no answer
  bool is_cut = false;     // nothing arrives
  std::vector<std::shared_ptr<http::Exchange>> held;

 private:
  AgentHub& hub_;
};

class AgentLinkTest : public testing::Test {
 protected:
  static constexpr Duration kExpiry = milliseconds(1200);

  AgentLinkTest() {
    HubBackbone backbone;
    backbone.backbone = {"demo", "/models/demo", "d1", 16};
    backbone.model = {100, 8, {0}};
    hub_.set_backbones({backbone});
    functions_.add_backbone("demo", true);
    auto server = http::HttpServer::listen(loop_, "127.0.0.1", 0, {}, faulty_, clock_);
    EXPECT_TRUE(server);
    server_ = *std::move(server);
    AgentLink::Options options;
    options.client.url =
        *http::parse_base_url("http://127.0.0.1:" + std::to_string(server_->port()));
    options.client.headers = {{"Authorization", std::string("Bearer ") + test::kToken}};
    options.join = {.agent = "a",
                    .key = {},
                    .cores = 1,
                    .turn_cores = 1,
                    .memory_bytes = 1000,
                    .max_functions = 2,
                    .backbones = {{"demo", "d1"}}};
    options.key_prefix = "k";
    auto link = AgentLink::open(options, loop_, clock_, machine_, functions_,
                                {.joined = [this] { ++joined_; },
                                 .failed = [this](const Error& e) { failure_ = e.message; },
                                 .left = [this] { left_ = true; }});
    EXPECT_TRUE(link);
    link_ = *std::move(link);
    tick();
  }

  // The clock stands still while the machine is busy elsewhere: the hub and the link must not find
  // that the other has been silent because this process did not run.
  void tick() {
    clock_.advance(milliseconds(20));
    hub_.tick();
    loop_.after(milliseconds(20), [this] { tick(); });
  }
  // Runs the loop until `done` holds.
  void await(const std::function<bool()>& done) {
    const TimePoint end = clock_.now() + seconds(60);
    std::function<void()> look = [&] {
      if (done() || clock_.now() > end) return loop_.stop();
      loop_.after(milliseconds(5), look);
    };
    loop_.post(look);
    loop_.run();
    ASSERT_TRUE(done());
  }
  void await_open() {
    await([this] { return is_open() && agent().holds[0].load == BackboneLoad::kLoaded; });
  }
  const AgentView& agent() const { return hub_.agents().at(0); }
  bool is_open() const { return !hub_.agents().empty() && agent().open; }
  std::unique_ptr<TenantLoop> start() {
    return hub_.start(1, 0, nullptr, "t", [] {});
  }

  ManualClock clock_;
  http::EventLoop loop_;
  AgentHub hub_{
      {.expiry = kExpiry, .first_epoch = 50}, test::agent_token(), clock_, [] {}, test::at_once};
  FaultyHub faulty_{hub_};
  std::unique_ptr<http::HttpServer> server_;
  test::HandMachine machine_;
  AgentFunctions functions_{machine_, clock_, 2};
  std::unique_ptr<AgentLink> link_;
  int joined_ = 0;
  bool left_ = false;
  std::string failure_;
};

TEST_F(AgentLinkTest, AFunctionAnswersThroughTheLink) {
  link_->start();
  await_open();
  const auto loop = start();
  await([&] { return machine_.last != nullptr; });
  machine_.last->become(EngineState::kReady);
  await([&] { return loop->state() == EngineState::kReady; });
  Request request;
  request.id = 3;
  request.prompt = {1, 2};
  request.sampling.n = 1;
  request.sampling.max_tokens = 1;
  ASSERT_TRUE(loop->submit(std::move(request)));
  await([&] { return !machine_.last->requests.empty(); });
  machine_.last->finish(3, clock_.now());
  OutputBatch batch;
  await([&] {
    if (batch.events.empty()) loop->take(batch);
    return !batch.events.empty();
  });
  EXPECT_EQ(batch.events[0].request, 3U);
  EXPECT_THAT(batch.tokens, ElementsAre(9));
}

TEST_F(AgentLinkTest, APlanIsFollowedAndReported) {
  link_->start();
  await_open();
  const TimePoint planned = clock_.now();
  hub_.plan(1, {});
  await([&] { return agent().holds[0].load == BackboneLoad::kAbsent; });
  EXPECT_LT(clock_.now() - planned, kExpiry / 12) << "sooner than at the next regular report";
  EXPECT_THAT(machine_.unloads, ElementsAre("demo"));
  hub_.plan(1, {{0, {1, {}}}});
  await([&] { return agent().holds[0].load == BackboneLoad::kLoading; });
  machine_.loaded("demo", {});
  await([&] { return agent().holds[0].workers == 1; });
  EXPECT_EQ(agent().holds[0].worker_bytes, 10);
  EXPECT_EQ(agent().free_bytes, 1000);
}

TEST_F(AgentLinkTest, APlanForAnotherEpochEndsTheSessionAndChangesNothing) {
  link_->start();
  await_open();
  AgentCommand old;
  old.kind = AgentCommandKind::kPlan;
  old.time = clock_.now();
  old.epoch = 49;
  const auto bytes = *encode_command(old);
  faulty_.stream->write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  await([&] { return joined_ == 2; });
  EXPECT_THAT(machine_.unloads, IsEmpty());
  await_open();
}

TEST_F(AgentLinkTest, LostReportsAndLostAnswersAreRepeated) {
  link_->start();
  await_open();
  faulty_.lost_reports = 1;
  faulty_.lost_answers = 1;
  const int before = faulty_.reports;
  await([&] { return faulty_.reports >= before + 5; });
  EXPECT_EQ(joined_, 1) << "the session goes on";
  EXPECT_TRUE(is_open());
  EXPECT_EQ(faulty_.lost_answers, 0);
}

// Its functions end before the gateway may start them elsewhere.
TEST_F(AgentLinkTest, WithoutAnswersAllEndsBeforeTheLeaseDoes) {
  link_->start();
  await_open();
  const auto loop = start();
  await([&] { return !machine_.alive.empty(); });
  faulty_.is_silent = true;
  await([&] { return machine_.alive.empty(); });
  EXPECT_NE(agent().phase, AgentPhase::kGone) << "the lease still runs";
  EXPECT_NE(loop->state(), EngineState::kFailed) << "it must not start elsewhere yet";
  faulty_.is_silent = false;
  await([&] { return joined_ == 2; });
  EXPECT_EQ(loop->state(), EngineState::kFailed) << "the new join says that it has ended";
}

TEST_F(AgentLinkTest, ItJoinsAgainWhenAllProcessesHaveEnded) {
  machine_.ends_at_once = false;
  link_->start();
  await_open();
  const auto loop = start();
  await([&] { return !machine_.alive.empty(); });
  hub_.stop();
  await([&] { return !machine_.ends.empty(); });
  const TimePoint later = clock_.now() + milliseconds(500);
  await([&] { return clock_.now() > later; });
  EXPECT_EQ(joined_, 1) << "a process still ends";
  machine_.end_processes();
  await([&] { return joined_ == 2; });
  await_open();
}

// A network that was cut delivers a copy of its first join, before its next one or after it.
TEST_F(AgentLinkTest, LateJoinsOfItsOwnDoNotShutItOut) {
  link_->start();
  await_open();
  const auto cut_until_it_is_forgotten = [&] {
    faulty_.is_cut = true;
    await([&] { return agent().phase == AgentPhase::kGone; });
    faulty_.is_cut = false;
  };
  const auto late_join = [&] {
    hub_.handle(std::make_shared<test::FakeExchange>(faulty_.joins.front()));
  };
  cut_until_it_is_forgotten();
  late_join();
  await_open();
  cut_until_it_is_forgotten();
  await_open();
  const int joined = joined_;
  late_join();
  const int reports = faulty_.reports;
  await([&] { return faulty_.reports >= reports + 3; });
  EXPECT_TRUE(is_open());
  EXPECT_EQ(joined_, joined) << "its session goes on";
  EXPECT_EQ(failure_, "");
}

TEST_F(AgentLinkTest, ADrainedAgentTakesNothingAndLeavesWhenItsFunctionsHaveEnded) {
  link_->start();
  await_open();
  auto loop = start();
  await([&] { return !machine_.alive.empty(); });
  link_->drain(seconds(50));
  await([&] { return agent().phase == AgentPhase::kDraining; });
  EXPECT_FALSE(agent().open);
  EXPECT_FALSE(left_);
  loop.reset();
  await([&] { return left_; });
  EXPECT_EQ(agent().phase, AgentPhase::kGone);
  EXPECT_THAT(machine_.alive, IsEmpty());
}

TEST_F(AgentLinkTest, AnAgentWithAnotherModelIsRefused) {
  HubBackbone backbone;
  backbone.backbone = {"demo", "/models/demo", "d2", 16};
  backbone.model = {100, 8, {0}};
  hub_.set_backbones({backbone});
  link_->start();
  await([&] { return !failure_.empty(); });
  EXPECT_THAT(failure_, testing::HasSubstr("the checkpoints differ"));
  EXPECT_EQ(joined_, 0);
}

TEST_F(AgentLinkTest, AnOutputThatCannotBeSentEndsTheSessionAndNothingFollowsIt) {
  link_->start();
  await_open();
  const auto first = start();
  await([this] { return machine_.last != nullptr; });
  test::HandLoop* const loud = machine_.last;
  loud->become(EngineState::kReady);
  await([&] { return first->state() == EngineState::kReady; });
  const auto second = start();
  await([&] { return machine_.last != loud; });
  machine_.last->become(EngineState::kReady);
  await([&] { return second->state() == EngineState::kReady; });
  const std::uint64_t joined = joined_;
  // Both have something to say when the first one's words turn out to be too many.
  loud->pending.tokens.assign((std::size_t{17} << 20) / sizeof(TokenId), 1);
  OutputEvent event;
  event.request = 1;
  event.num_tokens = static_cast<std::uint32_t>(loud->pending.tokens.size());
  loud->pending.events.push_back(event);
  machine_.last->finish(2, clock_.now());
  await([&] { return joined_ > static_cast<int>(joined) && is_open(); });
  EXPECT_THAT(machine_.alive, IsEmpty());
  EXPECT_EQ(first->state(), EngineState::kFailed) << "the join has fenced it";
  OutputBatch batch;
  second->take(batch);
  EXPECT_THAT(batch.events, IsEmpty());
  EXPECT_TRUE(first->is_lost() && second->is_lost());
}

}  // namespace
}  // namespace sluice
