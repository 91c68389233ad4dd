#include "agents/agent_hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/shared_memory.h"
#include "tests/support/agent_stream.h"

namespace sluice {
namespace {

using std::chrono::seconds;
using test::FakeExchange;
using test::kToken;
using test::take_commands;
using testing::HasSubstr;

class AgentHubTest : public testing::Test {
 protected:
  AgentHubTest()
      : hub_(
            {.expiry = seconds(5), .first_epoch = 50, .turn_cores = 2, .max_requests = 10},
            test::agent_token(), clock_, [this] { ++changes_; },
            [this](std::function<void()> work, std::function<void()> done) {
              if (!holds_work_) return test::at_once(work, done);
              held_.push_back(
                  [work = std::move(work), done = std::move(done)] { test::at_once(work, done); });
            }) {
    clock_.advance(seconds(100));
    HubBackbone backbone;
    backbone.backbone = {"demo", "/models/demo", "d1", 16};
    backbone.model = {100, 8, {0}};
    hub_.set_backbones({backbone});
  }

  std::shared_ptr<FakeExchange> call(const std::string& path, std::string body,
                                     const std::string& query = {}) {
    http::Request request;
    request.method = path == "backbones" || path.starts_with("adapters/") ? "GET" : "POST";
    request.path = "/v1/agents/" + path;
    request.query = query;
    request.headers = {{"Authorization", std::string("Bearer ") + kToken}};
    request.body = std::move(body);
    auto exchange = std::make_shared<FakeExchange>(request);
    const auto refused = hub_.admit(request);
    if (refused) {
      exchange->head = *refused;
    } else {
      hub_.handle(exchange);
    }
    return exchange;
  }
  // The fault of an answer.
  static std::string code(const FakeExchange& exchange) {
    const auto answer = parse_agent_answer(exchange.head->body);
    EXPECT_TRUE(answer) << exchange.head->body;
    return answer ? std::string(agent_fault_name(answer->fault)) : std::string();
  }
  std::uint64_t join(const std::string& key = "k1", const std::string& agent = "a") {
    AgentJoin join;
    join.agent = agent;
    join.key = key;
    join.cores = 4;
    join.turn_cores = 1;
    join.memory_bytes = 1000;
    join.max_functions = 3;
    join.backbones = {{"demo", "d1"}};
    const auto exchange = call("join", agent_json(join));
    EXPECT_EQ(code(*exchange), "none");
    return parse_agent_answer(exchange->head->body)->epoch;
  }
  std::shared_ptr<FakeExchange> listen(std::uint64_t epoch) {
    return call("listen", agent_json(AgentCall{"a", epoch}));
  }
  std::string report(std::uint64_t epoch, std::uint64_t sequence,
                     std::vector<AgentInstance> instances = {},
                     std::vector<AgentHolding> backbones = {}) {
    AgentReport report;
    report.agent = "a";
    report.epoch = epoch;
    report.sequence = sequence;
    report.free_bytes = 7;
    report.instances = std::move(instances);
    report.backbones = std::move(backbones);
    return code(*call("report", agent_json(report)));
  }
  std::string output(std::uint64_t epoch, std::uint64_t sequence, const AgentOutput& output) {
    const auto bytes = *encode_output(output);
    return code(
        *call("outputs", {reinterpret_cast<const char*>(bytes.data()), bytes.size()},
              "agent=a&epoch=" + std::to_string(epoch) + "&sequence=" + std::to_string(sequence)));
  }
  static AgentOutput ready(std::uint64_t instance) {
    StateFrame state;
    state.state = EngineState::kReady;
    return {instance, Duration(0), state};
  }
  std::unique_ptr<TenantLoop> start() {
    return hub_.start(1, 0, nullptr, "t", [this] { ++wakes_; });
  }
  static Request request(RequestId id) {
    Request request;
    request.id = id;
    request.prompt = {1, 2, 3};
    request.sampling.n = 1;
    request.sampling.max_tokens = 4;
    return request;
  }
  static OutputBatch token_of(RequestId id, TokenId token) {
    OutputBatch batch;
    OutputEvent event;
    event.request = id;
    event.num_tokens = 1;
    batch.tokens = {token};
    batch.events = {event};
    return batch;
  }

  ManualClock clock_;
  int changes_ = 0;
  int wakes_ = 0;
  bool holds_work_ = false;
  std::vector<std::function<void()>> held_;  // work of another thread, until a test does it
  AgentHub hub_;
};

TEST_F(AgentHubTest, AFunctionRunsOnAnAgent) {
  const std::uint64_t epoch = join();
  EXPECT_FALSE(hub_.agents()[0].open);
  const auto stream = listen(epoch);
  ASSERT_EQ(stream->head->status, 200);
  ASSERT_TRUE(hub_.agents()[0].open);
  EXPECT_EQ(hub_.agents()[0].places, 3);
  take_commands(*stream);
  auto loop = start();
  std::vector<AgentCommand> commands = take_commands(*stream);
  ASSERT_EQ(commands.size(), 1U);
  EXPECT_EQ(commands[0].kind, AgentCommandKind::kStart);
  EXPECT_EQ(commands[0].backbone, "demo");
  EXPECT_EQ(commands[0].tenant, "t");
  const std::uint64_t instance = commands[0].instance;
  EXPECT_EQ(loop->state(), EngineState::kLoading);
  EXPECT_FALSE(loop->submit(request(1)));
  EXPECT_EQ(output(epoch, 1, ready(instance)), "none");
  EXPECT_EQ(loop->state(), EngineState::kReady);
  ASSERT_TRUE(loop->submit(request(1)));
  commands = take_commands(*stream);
  ASSERT_EQ(commands.size(), 1U);
  EXPECT_EQ(std::get<RequestFrame>(*commands[0].frame).request.prompt, (std::vector{1, 2, 3}));
  EXPECT_EQ(output(epoch, 2, {instance, seconds(6), token_of(1, 7)}), "none");
  OutputBatch batch;
  loop->take(batch);
  ASSERT_EQ(batch.events.size(), 1U);
  EXPECT_EQ(batch.tokens, (std::vector<TokenId>{7}));
  // Turns of one core there are half of the gateway's, of two.
  EXPECT_EQ(report(epoch, 3, {{instance, 123}}), "none");
  EXPECT_EQ(loop->use().turn_time, seconds(3));
  EXPECT_EQ(loop->use().own_bytes, 123);
  EXPECT_EQ(hub_.agents()[0].free_bytes, 7);
  loop.reset();
  commands = take_commands(*stream);
  ASSERT_EQ(commands.size(), 1U);
  EXPECT_EQ(commands[0].kind, AgentCommandKind::kEnd);
  // An output of the time before it knew changes nothing.
  EXPECT_EQ(output(epoch, 4, {instance, seconds(7), token_of(1, 7)}), "none");
}

TEST_F(AgentHubTest, AStreamThatEndsTakesTheCallsAlongAndAJoinFencesTheFunction) {
  const std::uint64_t epoch = join();
  const auto stream = listen(epoch);
  auto loop = start();
  ASSERT_EQ(output(epoch, 1, ready(1)), "none");
  ASSERT_TRUE(loop->submit(request(1)));
  stream->leave(http::CloseReason::kPeerGone);
  EXPECT_TRUE(loop->is_lost());
  EXPECT_EQ(loop->state(), EngineState::kLoading);  // it may still run there
  EXPECT_FALSE(hub_.agents()[0].open);
  OutputBatch batch;
  loop->take(batch);
  ASSERT_EQ(batch.events.size(), 1U);
  EXPECT_EQ(batch.events[0].finish_reason, FinishReason::kError);
  EXPECT_FALSE(loop->submit(request(2)));
  // It must not renew its lease now.
  EXPECT_EQ(output(epoch, 2, ready(1)), "unknown_agent");
  EXPECT_EQ(report(epoch, 2), "unknown_agent");
  EXPECT_EQ(listen(epoch)->head->status, 409);
  const std::uint64_t next = join("k2");
  EXPECT_GT(next, epoch);
  EXPECT_EQ(loop->state(), EngineState::kFailed);
  EXPECT_EQ(report(epoch, 2), "stale_epoch");
  EXPECT_EQ(listen(next)->head->status, 200);
  EXPECT_TRUE(hub_.agents()[0].open);
  EXPECT_EQ(loop->state(), EngineState::kFailed);
}

TEST_F(AgentHubTest, TheEndOfALeaseFences) {
  const std::uint64_t epoch = join();
  const auto stream = listen(epoch);
  auto loop = start();
  clock_.advance(seconds(4));
  EXPECT_EQ(report(epoch, 1), "none");
  clock_.advance(seconds(4));
  hub_.tick();
  EXPECT_FALSE(loop->is_lost());
  EXPECT_EQ(take_commands(*stream).back().kind, AgentCommandKind::kPing);
  // Repeated, old and wrong messages do not renew it.
  EXPECT_EQ(report(epoch, 1), "repeated");
  EXPECT_EQ(report(epoch - 1, 2), "stale_epoch");
  EXPECT_EQ(report(epoch, 3), "bad_request");
  clock_.advance(seconds(1));
  hub_.tick();
  EXPECT_TRUE(loop->is_lost());
  EXPECT_EQ(loop->state(), EngineState::kFailed);
  EXPECT_TRUE(stream->aborted);
  EXPECT_EQ(report(epoch, 2), "unknown_agent");
}

TEST_F(AgentHubTest, AnAgentThatLiesIsLostAndOthersAreNot) {
  const std::uint64_t epoch = join();
  const auto stream = listen(epoch);
  const std::uint64_t other = join("k1", "b");
  call("listen", agent_json(AgentCall{"b", other}));
  auto loop = start();
  auto sibling = hub_.start(2, 0, nullptr, "t", [] {});
  ASSERT_EQ(output(epoch, 1, ready(1)), "none");
  ASSERT_TRUE(loop->submit(request(1)));
  EXPECT_EQ(output(epoch, 2, {1, Duration(0), token_of(99, 7)}), "bad_request");
  EXPECT_TRUE(loop->is_lost());
  EXPECT_TRUE(stream->aborted);
  EXPECT_FALSE(sibling->is_lost());
  // An agent's word counts for its own instances only.
  EXPECT_EQ(sibling->state(), EngineState::kLoading);
}

TEST_F(AgentHubTest, AnAgentCannotSpeakForAnothersInstances) {
  const std::uint64_t epoch = join();
  listen(epoch);
  const std::uint64_t other = join("k1", "b");
  call("listen", agent_json(AgentCall{"b", other}));
  auto theirs = hub_.start(2, 0, nullptr, "t", [] {});
  EXPECT_EQ(output(epoch, 1, ready(1)), "none");
  EXPECT_EQ(theirs->state(), EngineState::kLoading);
  EXPECT_EQ(report(epoch, 2, {{1, 55}}), "none");
  EXPECT_EQ(theirs->use().own_bytes, 0);
}

TEST_F(AgentHubTest, UnknownIdsAndPathsAreRefused) {
  const std::uint64_t epoch = join();
  listen(epoch);
  EXPECT_EQ(report(epoch, 1, {{1, 5}}), "unknown_name");
  EXPECT_EQ(output(epoch, 1, ready(1)), "unknown_name");
  EXPECT_EQ(code(*call("adapters/abc", {})), "unknown_name");
  EXPECT_EQ(code(*call("nothing", {})), "unknown_path");
  EXPECT_EQ(code(*call("leave", agent_json(AgentCall{"b", epoch}))), "unknown_agent");
  EXPECT_EQ(code(*call("outputs", {}, "agent=a")), "bad_request");
  EXPECT_EQ(code(*call("outputs", "x", "agent=a&epoch=" + std::to_string(epoch) + "&sequence=1")),
            "bad_request");
  // None of them was handled: the first number is still the next one.
  EXPECT_EQ(report(epoch, 1), "none");
  http::Request head;
  head.method = "GET";
  head.path = "/v1/agents/join";
  EXPECT_EQ(hub_.admit(head)->status, 405);
  head.method = "POST";
  EXPECT_EQ(hub_.admit(head)->status, 401);
  head.headers = {{"Authorization", "Bearer wrong"}};
  EXPECT_EQ(hub_.admit(head)->status, 401);
}

TEST_F(AgentHubTest, LeavingFencesAtOnce) {
  const std::uint64_t epoch = join();
  listen(epoch);
  auto loop = start();
  EXPECT_EQ(code(*call("leave", agent_json(AgentCall{"a", epoch}))), "none");
  EXPECT_EQ(loop->state(), EngineState::kFailed);
  EXPECT_EQ(report(epoch, 1), "unknown_agent");
  EXPECT_FALSE(hub_.agents()[0].open);
  EXPECT_EQ(hub_.agents()[0].cores, 0);
}

TEST_F(AgentHubTest, AnAgentSaysWhatItHolds) {
  const std::uint64_t epoch = join();
  const auto stream = listen(epoch);
  EXPECT_EQ(hub_.agents()[0].holds[0].load, BackboneLoad::kAbsent) << "it has said nothing yet";
  const int changes = changes_;
  EXPECT_EQ(report(epoch, 1, {}, {{"demo", BackboneLoad::kLoaded, 2, 50}}), "none");
  EXPECT_EQ(hub_.agents()[0].holds[0].load, BackboneLoad::kLoaded);
  EXPECT_EQ(hub_.agents()[0].holds[0].workers, 2);
  EXPECT_EQ(hub_.agents()[0].free_bytes, 7);
  EXPECT_GT(changes_, changes);
  EXPECT_EQ(report(epoch, 2, {}, {{"else", BackboneLoad::kLoaded, 0, 0}}), "unknown_name");
  EXPECT_EQ(hub_.agents()[0].holds[0].load, BackboneLoad::kLoaded);
  EXPECT_EQ(report(epoch, 2, {}, {}), "none");
  EXPECT_EQ(hub_.agents()[0].holds[0].load, BackboneLoad::kAbsent);
}

TEST_F(AgentHubTest, AnAgentHoldsNothingThatItHasNotJoinedWith) {
  AgentJoin join;
  join.agent = "a";
  join.key = "k";
  join.cores = join.turn_cores = join.memory_bytes = join.max_functions = 1;
  ASSERT_EQ(code(*call("join", agent_json(join))), "none");
  const auto stream = listen(50);
  EXPECT_EQ(report(50, 1, {}, {{"demo", BackboneLoad::kLoaded, 0, 0}}), "unknown_name");
  EXPECT_EQ(hub_.agents()[0].holds[0].load, BackboneLoad::kAbsent);
  EXPECT_EQ(report(50, 1), "none");
}

TEST_F(AgentHubTest, APlanGoesToItsEpochAndIsNotRepeatedWithoutNeed) {
  join("k1");
  hub_.plan(1, {{0, {2, {}}}});  // ignored: it has no stream yet
  const std::uint64_t epoch = join("k2");
  const auto stream = listen(epoch);
  take_commands(*stream);
  hub_.plan(1, {{0, {2, {}}}});
  std::vector<AgentCommand> commands = take_commands(*stream);
  ASSERT_EQ(commands.size(), 1U);
  EXPECT_EQ(commands[0].kind, AgentCommandKind::kPlan);
  EXPECT_EQ(commands[0].epoch, epoch);
  EXPECT_EQ(commands[0].plan, (std::vector<PlannedBackbone>{{"demo", 2, {}}}));
  hub_.plan(1, {{0, {2, {}}}});
  EXPECT_TRUE(take_commands(*stream).empty());
  hub_.plan(1, {});
  commands = take_commands(*stream);
  ASSERT_EQ(commands.size(), 1U);
  EXPECT_TRUE(commands[0].plan.empty());
  clock_.advance(AgentHub::kPlanAgain);
  hub_.plan(1, {});
  EXPECT_EQ(take_commands(*stream).size(), 1U) << "a load may have failed";
  // Another process by this name: the stream before is closed, and the plan is sent anew.
  const std::uint64_t next = join("k3");
  EXPECT_TRUE(stream->aborted);
  const auto later = listen(next);
  take_commands(*later);
  hub_.plan(1, {});
  commands = take_commands(*later);
  ASSERT_EQ(commands.size(), 1U);
  EXPECT_EQ(commands[0].epoch, next);
  EXPECT_TRUE(take_commands(*stream).empty());
}

TEST_F(AgentHubTest, AnAgentMayAskForTheAdaptersOfItsPlan) {
  auto content = std::make_shared<AdapterContent>();
  content->image.digest = "d1";
  auto memory = create_shared_memory("adapter", 3);
  ASSERT_TRUE(memory && write_shared_memory(memory->get(), 0, as_bytes(std::span("abc", 3)), "it"));
  content->memory = *std::move(memory);
  const std::uint64_t epoch = join();
  const auto stream = listen(epoch);
  take_commands(*stream);
  EXPECT_EQ(code(*call("adapters/d1", {})), "unknown_name");
  hub_.plan(1, {{0, {0, {content}}}});
  EXPECT_EQ(take_commands(*stream).at(0).plan, (std::vector<PlannedBackbone>{{"demo", 0, {"d1"}}}));
  EXPECT_EQ(call("adapters/d1", {})->head->body, "abc");
  AgentReport held;
  held.agent = "a";
  held.epoch = epoch;
  held.sequence = 1;
  held.adapters = {{"demo", "d1", std::chrono::milliseconds(20)}};
  EXPECT_EQ(code(*call("report", agent_json(held))), "none");
  EXPECT_EQ(hub_.agents()[0].adapters[0].at("d1"), std::chrono::milliseconds(20));
  held.sequence = 2;
  held.adapters = {{"else", "d1", {}}};
  EXPECT_EQ(code(*call("report", agent_json(held))), "unknown_name");
  EXPECT_EQ(hub_.agents()[0].adapters[0].size(), 1U) << "a wrong message changes nothing";
  const std::weak_ptr<AdapterContent> kept = content;
  content.reset();
  EXPECT_FALSE(kept.expired()) << "the plan has it";
  hub_.plan(1, {{0, {0, {}}}});
  EXPECT_TRUE(kept.expired());
  EXPECT_EQ(code(*call("adapters/d1", {})), "unknown_name");
}

TEST_F(AgentHubTest, AnAdapterIsCopiedOnAnotherThread) {
  auto content = std::make_shared<AdapterContent>();
  content->image.digest = "d1";
  auto memory = create_shared_memory("adapter", 3);
  ASSERT_TRUE(memory && write_shared_memory(memory->get(), 0, as_bytes(std::span("abc", 3)), "it"));
  content->memory = *std::move(memory);
  const auto stream = listen(join());
  hub_.plan(1, {{0, {0, {content}}}});
  holds_work_ = true;
  const auto first = call("adapters/d1", {});
  EXPECT_FALSE(first->head) << "it is not copied on this thread";
  // The plan may change meanwhile.
  content.reset();
  hub_.plan(1, {{0, {0, {}}}});
  ASSERT_EQ(held_.size(), 1U);
  std::exchange(held_, {})[0]();
  EXPECT_EQ(first->head->body, "abc");
  // An end meanwhile answers the call.
  content = std::make_shared<AdapterContent>();
  content->image.digest = "d1";
  hub_.plan(1, {{0, {0, {content}}}});
  const auto second = call("adapters/d1", {});
  hub_.stop();
  EXPECT_EQ(code(*second), "not_ready");
  held_[0]();
}

TEST_F(AgentHubTest, ThePhaseSaysWhatALeaseMeans) {
  EXPECT_EQ(join(), 50U);
  const auto phase = [&] { return hub_.agents()[0].phase; };
  EXPECT_EQ(phase(), AgentPhase::kGone) << "it runs nothing before its stream is open";
  const auto stream = listen(50);
  EXPECT_EQ(phase(), AgentPhase::kOpen);
  stream->leave(http::CloseReason::kPeerGone);
  EXPECT_EQ(phase(), AgentPhase::kLost);
  clock_.advance(seconds(2));
  EXPECT_EQ(hub_.lease_left(1), seconds(3));
  clock_.advance(seconds(4));
  hub_.tick();
  EXPECT_EQ(phase(), AgentPhase::kGone);
  EXPECT_EQ(hub_.lease_left(1), Duration(0));
}

}  // namespace
}  // namespace sluice
