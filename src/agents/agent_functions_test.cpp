#include "agents/agent_functions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "agents/hand_machine.h"

namespace sluice {
namespace {

using std::chrono::seconds;
using test::HandLoop;
using test::HandMachine;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// The agent's clock is 100 s before the gateway's.
constexpr Duration kAhead = seconds(100);

class AgentFunctionsTest : public testing::Test {
 protected:
  AgentFunctionsTest() {
    clock_.advance(seconds(1));
    functions_.add_backbone("demo", true);
    functions_.add_backbone("other", true);
    functions_.set_calls({.output = [this](AgentOutput out) { outputs_.push_back(std::move(out)); },
                          .fetch_adapter = [this](const std::string& d) { fetches_.push_back(d); },
                          .wake = [this] { ++wakes_; },
                          .broken = [this](const Error& e) { broken_.push_back(e.message); }});
  }

  AgentCommand command(AgentCommandKind kind, std::uint64_t instance = 0) const {
    AgentCommand command;
    command.kind = kind;
    command.instance = instance;
    command.time = clock_.now() + kAhead;
    return command;
  }
  Status start(std::uint64_t id, const std::string& backbone = "demo",
               const std::string& adapter = {}) {
    AgentCommand start = command(AgentCommandKind::kStart, id);
    start.backbone = backbone;
    start.adapter = adapter;
    start.tenant = "t";
    return functions_.handle(std::move(start));
  }
  Status frame(std::uint64_t id, ToFunction frame) {
    AgentCommand one = command(AgentCommandKind::kFrame, id);
    one.frame = std::move(frame);
    return functions_.handle(std::move(one));
  }
  void end(std::uint64_t id) {
    EXPECT_TRUE(functions_.handle(command(AgentCommandKind::kEnd, id)));
  }
  Status plan(std::vector<PlannedBackbone> backbones) {
    AgentCommand plan = command(AgentCommandKind::kPlan);
    plan.plan = std::move(backbones);
    return functions_.handle(std::move(plan));
  }
  BackboneLoad load_of(const std::string& name) const {
    for (const AgentHolding& one : functions_.holdings()) {
      if (one.name == name) return one.load;
    }
    ADD_FAILURE() << name;
    return {};
  }
  // The state that was said last.
  std::optional<StateFrame> said() const {
    if (outputs_.empty()) return std::nullopt;
    const auto* state = std::get_if<StateFrame>(&outputs_.back().frame);
    return state == nullptr ? std::nullopt : std::optional(*state);
  }

  ManualClock clock_;
  HandMachine machine_;
  AgentFunctions functions_{machine_, clock_, 2};
  std::vector<AgentOutput> outputs_;
  std::vector<std::string> fetches_;
  std::vector<std::string> broken_;
  int wakes_ = 0;
};

// ---------------------------------------------------------------- instances

TEST_F(AgentFunctionsTest, AFunctionAnswersInTheGatewaysTime) {
  ASSERT_TRUE(start(1));
  EXPECT_EQ(machine_.last->tenant, "t");
  functions_.collect();
  EXPECT_THAT(outputs_, IsEmpty()) << "it is not ready";
  machine_.last->become(EngineState::kReady);
  functions_.collect();
  ASSERT_TRUE(said());
  EXPECT_EQ(said()->state, EngineState::kReady);
  RequestFrame request;
  request.request.id = 5;
  request.request.arrival = clock_.now() + kAhead;
  request.grammar = -1;
  ASSERT_TRUE(frame(1, request));
  ASSERT_THAT(machine_.last->requests, SizeIs(1));
  EXPECT_EQ(machine_.last->requests[0].arrival, clock_.now());
  EXPECT_EQ(machine_.last->requests[0].client_key, "t");
  machine_.last->finish(5, clock_.now());
  functions_.collect();
  const auto* batch = std::get_if<OutputBatch>(&outputs_.back().frame);
  ASSERT_NE(batch, nullptr);
  EXPECT_EQ(batch->events.at(0).time, clock_.now() + kAhead);
  EXPECT_EQ(outputs_.back().turn_time, std::chrono::milliseconds(5));
  EXPECT_EQ(functions_.uses().at(0).own_bytes, 77);
}

TEST_F(AgentFunctionsTest, TheFastestCommandTellsTheDifferenceOfTheClocks) {
  AgentCommand late = command(AgentCommandKind::kPing);
  late.time.since_start -= seconds(3);  // it was under way for 3 s
  ASSERT_TRUE(functions_.handle(std::move(late)));
  ASSERT_TRUE(start(1));
  machine_.last->become(EngineState::kReady);
  functions_.collect();
  late = command(AgentCommandKind::kPing);
  late.time.since_start -= seconds(3);
  ASSERT_TRUE(functions_.handle(std::move(late)));
  RequestFrame request;
  request.request.arrival = clock_.now() + kAhead;
  request.grammar = -1;
  ASSERT_TRUE(frame(1, request));
  EXPECT_EQ(machine_.last->requests.at(0).arrival, clock_.now());
}

TEST_F(AgentFunctionsTest, RefusalsAndFailuresReachTheGateway) {
  ASSERT_TRUE(start(1));
  machine_.last->become(EngineState::kReady);
  machine_.last->refuses = true;
  functions_.collect();
  RequestFrame request;
  request.request.id = 5;
  request.grammar = -1;
  ASSERT_TRUE(frame(1, request));
  const auto* batch = std::get_if<OutputBatch>(&outputs_.back().frame);
  ASSERT_NE(batch, nullptr);
  EXPECT_EQ(batch->refused.at(0).request, 5U);
  machine_.last->reason = unavailable("its process has died");
  machine_.last->become(EngineState::kFailed);
  functions_.collect();
  ASSERT_TRUE(said());
  EXPECT_EQ(said()->message, "its process has died");
  const std::size_t count = outputs_.size();
  functions_.collect();
  EXPECT_EQ(outputs_.size(), count) << "it is said once";
}

TEST_F(AgentFunctionsTest, AGatewayThatBreaksTheRulesEndsTheSession) {
  EXPECT_FALSE(start(0));
  ASSERT_TRUE(start(1));
  EXPECT_FALSE(start(1));
  EXPECT_FALSE(frame(2, CancelFrame{1})) << "there is no such instance";
  EXPECT_FALSE(plan({{"unknown", 0, {}}}));
  EXPECT_TRUE(frame(1, CancelFrame{1}));
  EXPECT_THAT(machine_.last->cancelled, ElementsAre(1U));
}

RequestFrame request_of(RequestId id) {
  RequestFrame frame;
  frame.request.id = id;
  frame.grammar = -1;
  return frame;
}

TEST_F(AgentFunctionsTest, AVocabularyIsPreparedBesideTheLoopAndFramesKeepTheirOrder) {
  machine_.asides_at_once = false;
  ASSERT_TRUE(start(1));
  const HandLoop& one = *machine_.last;
  ASSERT_TRUE(start(2));
  const HandLoop& other = *machine_.last;
  ASSERT_TRUE(frame(1, VocabularyFrame{"ab", {0, 1, 2}}));
  ASSERT_TRUE(frame(1, request_of(5)));
  ASSERT_TRUE(frame(1, VocabularyFrame{"cd", {0, 1, 2}}));
  ASSERT_TRUE(frame(1, CancelFrame{5}));
  ASSERT_TRUE(frame(2, request_of(6)));
  EXPECT_THAT(one.requests, IsEmpty());
  EXPECT_THAT(other.requests, SizeIs(1)) << "another instance does not wait";
  machine_.run_asides();
  EXPECT_THAT(one.requests, SizeIs(1));
  EXPECT_THAT(one.cancelled, IsEmpty()) << "it is behind the second vocabulary";
  machine_.run_asides();
  EXPECT_THAT(one.cancelled, ElementsAre(5U));
  EXPECT_THAT(broken_, IsEmpty());
}

TEST_F(AgentFunctionsTest, AVocabularyThatIsWrongEndsTheSession) {
  ASSERT_TRUE(start(1));
  ASSERT_TRUE(frame(1, VocabularyFrame{"ab", {0, 1}}));
  ASSERT_TRUE(frame(1, GrammarFrame{0, "no image"}));
  EXPECT_THAT(broken_, ElementsAre(HasSubstr("tokens do not cover"), HasSubstr("no vocabulary")));
}

TEST_F(AgentFunctionsTest, AFrameThatWaitedAndIsWrongEndsTheSession) {
  machine_.asides_at_once = false;
  ASSERT_TRUE(start(1));
  ASSERT_TRUE(frame(1, VocabularyFrame{"ab", {0, 1, 2}}));
  RequestFrame request = request_of(5);
  request.grammar = 3;
  ASSERT_TRUE(frame(1, request));
  machine_.run_asides();
  EXPECT_THAT(broken_, ElementsAre(HasSubstr("empty place 3")));
}

TEST_F(AgentFunctionsTest, AnInstanceMayEndWhileItsVocabularyIsPrepared) {
  machine_.asides_at_once = false;
  ASSERT_TRUE(start(1));
  ASSERT_TRUE(frame(1, VocabularyFrame{"ab", {0, 1}}));
  ASSERT_TRUE(frame(1, request_of(5)));
  end(1);
  ASSERT_TRUE(start(1)) << "the next session uses the number again";
  machine_.run_asides();
  EXPECT_THAT(broken_, IsEmpty());
  EXPECT_THAT(machine_.last->requests, IsEmpty());
}

TEST_F(AgentFunctionsTest, PlacesAreLimitedAndUnknownBackbonesFail) {
  ASSERT_TRUE(start(1, "unknown"));
  EXPECT_THAT(said()->message, HasSubstr("no backbone 'unknown'"));
  end(1);
  ASSERT_TRUE(start(2));
  ASSERT_TRUE(start(3));
  ASSERT_TRUE(start(4));
  EXPECT_THAT(said()->message, HasSubstr("its limit"));
  EXPECT_EQ(outputs_.back().instance, 4U);
  EXPECT_THAT(machine_.alive, SizeIs(2));
}

TEST_F(AgentFunctionsTest, AMissingAdapterIsFetchedFirst) {
  ASSERT_TRUE(start(1, "demo", "d7"));
  EXPECT_THAT(fetches_, ElementsAre("d7"));
  EXPECT_EQ(machine_.last, nullptr);
  functions_.adapter_came("d7", std::string("bytes"));
  ASSERT_NE(machine_.last, nullptr);
  ASSERT_TRUE(start(2, "demo", "d8"));
  functions_.adapter_came("d8", std::string("broken"));
  EXPECT_EQ(said()->message, "a broken adapter");
  end(2);
  ASSERT_TRUE(start(3, "demo", "d9"));
  functions_.adapter_came("d9", tl::unexpected(unavailable("gone")));
  EXPECT_EQ(said()->message, "gone");
  EXPECT_THAT(machine_.alive, SizeIs(1));
}

TEST_F(AgentFunctionsTest, KvMemoryIsThatOfTheFunctionsAndOfThoseThatEnd) {
  machine_.ends_at_once = false;
  std::int64_t ending = -1;
  EXPECT_THAT(functions_.kv(ending), IsEmpty());
  EXPECT_EQ(ending, 0);
  ASSERT_TRUE(start(1));
  HandLoop* const first = machine_.last;
  ASSERT_TRUE(start(2));
  HandLoop* const second = machine_.last;
  first->kv_held = 70;
  second->kv_held = 30;
  auto all = functions_.kv(ending);
  ASSERT_THAT(all, SizeIs(2));
  functions_.limit_kv(all[1].loop, 500);
  EXPECT_EQ(first->kv_limit, 0);
  EXPECT_EQ(second->kv_limit, 500);
  EXPECT_EQ(functions_.kv(ending)[1].kv.held, 30);
  // Its process still has the memory.
  end(1);
  EXPECT_THAT(functions_.kv(ending), SizeIs(1));
  EXPECT_EQ(ending, 70);
  // The gateway's number comes again, and is another function.
  ASSERT_TRUE(start(1));
  functions_.limit_kv(all[0].loop, 500);
  EXPECT_EQ(machine_.last->kv_limit, 0);
  machine_.end_processes();
  EXPECT_THAT(functions_.kv(ending), SizeIs(2));
  EXPECT_EQ(ending, 0);
}

// An agent divides the memory of its machine itself.
TEST_F(AgentFunctionsTest, AGatewayDoesNotLimitTheKvMemoryOfAnAgent) {
  ASSERT_TRUE(start(1));
  EXPECT_FALSE(frame(1, KvLimitFrame{1 << 20}));
}

TEST_F(AgentFunctionsTest, AllHaveEndedOnceNoProcessIsLeft) {
  machine_.ends_at_once = false;
  ASSERT_TRUE(start(1));
  ASSERT_TRUE(start(2));
  end(1);
  int ended = 0;
  functions_.end_all([&] { ++ended; });
  EXPECT_EQ(ended, 0);
  EXPECT_FALSE(functions_.empty());
  machine_.end_processes();
  EXPECT_EQ(ended, 1);
  EXPECT_TRUE(functions_.empty());
  functions_.end_all([&] { ++ended; });
  EXPECT_EQ(ended, 2);
}

// ---------------------------------------------------------------- plans

TEST_F(AgentFunctionsTest, APlanIsFollowed) {
  ASSERT_TRUE(plan({{"demo", 2, {}}}));
  EXPECT_THAT(machine_.unloads, ElementsAre("other"));
  EXPECT_EQ(machine_.workers.at("demo"), 2);
  EXPECT_EQ(load_of("other"), BackboneLoad::kAbsent);
  EXPECT_EQ(functions_.holdings().at(0).worker_bytes, 20);
  ASSERT_TRUE(plan({{"other", 1, {}}}));
  EXPECT_THAT(machine_.unloads, ElementsAre("other", "demo"));
  EXPECT_EQ(load_of("other"), BackboneLoad::kLoading);
  ASSERT_TRUE(plan({{"other", 1, {}}}));  // nothing twice
  machine_.loaded("other", {});
  EXPECT_EQ(load_of("other"), BackboneLoad::kLoaded);
  EXPECT_EQ(machine_.workers.at("other"), 1);
  ASSERT_TRUE(plan({{"other", 0, {}}}));
  EXPECT_EQ(machine_.workers.at("other"), 0);
}

TEST_F(AgentFunctionsTest, WithoutAPlanAllStays) {
  ASSERT_TRUE(start(1));
  end(1);
  EXPECT_THAT(machine_.unloads, IsEmpty());
}

TEST_F(AgentFunctionsTest, ABackboneInUseLeavesWhenItsLastInstanceHasEnded) {
  ASSERT_TRUE(start(1));
  ASSERT_TRUE(start(2));
  ASSERT_TRUE(plan({{"other", 0, {}}}));
  EXPECT_THAT(machine_.unloads, IsEmpty());
  end(1);
  EXPECT_THAT(machine_.unloads, IsEmpty());
  end(2);
  EXPECT_THAT(machine_.unloads, ElementsAre("demo"));
}

TEST_F(AgentFunctionsTest, AnInstanceThatWaitsForItsAdapterUsesItsBackbone) {
  ASSERT_TRUE(start(1, "demo", "d7"));
  ASSERT_TRUE(plan({}));
  EXPECT_THAT(machine_.unloads, ElementsAre("other"));
  functions_.adapter_came("d7", tl::unexpected(unavailable("gone")));
  end(1);
  EXPECT_THAT(machine_.unloads, ElementsAre("other", "demo"));
}

TEST_F(AgentFunctionsTest, AnInstanceLoadsItsBackboneFirst) {
  ASSERT_TRUE(plan({}));
  ASSERT_TRUE(start(1));
  ASSERT_TRUE(start(2, "demo", "d7"));
  EXPECT_THAT(machine_.loads, SizeIs(1)) << "one load for both";
  EXPECT_EQ(machine_.last, nullptr);
  machine_.loaded("demo", {});
  EXPECT_THAT(machine_.alive, SizeIs(1));
  EXPECT_THAT(fetches_, ElementsAre("d7"));
  EXPECT_EQ(load_of("demo"), BackboneLoad::kLoaded) << "it is in use, although no plan has it";
  end(1);
  end(2);
  EXPECT_EQ(load_of("demo"), BackboneLoad::kAbsent);
}

TEST_F(AgentFunctionsTest, AnInstanceThatEndsBeforeItsBackboneIsThereStartsNothing) {
  ASSERT_TRUE(plan({}));
  ASSERT_TRUE(start(1));
  end(1);
  machine_.loaded("demo", {});
  EXPECT_EQ(machine_.last, nullptr);
  EXPECT_EQ(load_of("demo"), BackboneLoad::kAbsent) << "nothing wants it any more";
}

TEST_F(AgentFunctionsTest, AFailedLoadFailsItsInstancesAndTheNextPlanTriesAgain) {
  ASSERT_TRUE(plan({}));
  ASSERT_TRUE(start(1));
  machine_.loaded("demo", unavailable("no memory"));
  EXPECT_EQ(said()->message, "no memory");
  EXPECT_EQ(load_of("demo"), BackboneLoad::kAbsent);
  end(1);
  EXPECT_THAT(machine_.loads, IsEmpty());
  ASSERT_TRUE(plan({{"demo", 0, {}}}));
  EXPECT_THAT(machine_.loads, SizeIs(1));
}

TEST_F(AgentFunctionsTest, APlanEndsWithItsSession) {
  ASSERT_TRUE(start(1));
  ASSERT_TRUE(plan({}));
  bool ended = false;
  functions_.end_all([&] { ended = true; });
  EXPECT_TRUE(ended);
  // The next session begins with what is there, until its first plan.
  EXPECT_EQ(load_of("demo"), BackboneLoad::kLoaded);
  ASSERT_TRUE(start(1));
  end(1);
  EXPECT_EQ(load_of("demo"), BackboneLoad::kLoaded);
}

TEST_F(AgentFunctionsTest, ABackboneThatDoesNotFitMakesIdleThingsLeaveAndIsTriedOnceMore) {
  ASSERT_TRUE(plan({{"other", 3, {"d1"}}}));
  functions_.adapter_came("d1", std::string("bytes"));
  ASSERT_TRUE(start(1));
  machine_.loaded("demo", resource_exhausted("no memory"));
  EXPECT_THAT(machine_.unloads, ElementsAre("demo", "other"));
  EXPECT_THAT(machine_.adapters, IsEmpty());
  EXPECT_THAT(outputs_, IsEmpty()) << "the call waits";
  ASSERT_THAT(machine_.loads, SizeIs(1)) << "what has left waits for the next plan";
  machine_.loaded("demo", {});
  EXPECT_THAT(machine_.alive, SizeIs(1));
  EXPECT_EQ(load_of("other"), BackboneLoad::kAbsent);
  ASSERT_TRUE(plan({{"other", 0, {}}}));
  EXPECT_THAT(machine_.loads, SizeIs(1));
}

TEST_F(AgentFunctionsTest, ASecondShortageFailsTheCall) {
  ASSERT_TRUE(plan({{"other", 0, {}}}));
  ASSERT_TRUE(start(1));
  machine_.loaded("demo", resource_exhausted("no memory"));
  machine_.loaded("demo", resource_exhausted("no memory"));
  EXPECT_EQ(said()->message, "no memory");
  EXPECT_THAT(machine_.loads, IsEmpty());
}

TEST_F(AgentFunctionsTest, AShortageTakesNothingThatIsInUse) {
  ASSERT_TRUE(start(1, "other", "d1"));
  functions_.adapter_came("d1", std::string("bytes"));
  ASSERT_TRUE(plan({{"other", 2, {"d1"}}}));
  ASSERT_TRUE(start(2));
  machine_.loaded("demo", resource_exhausted("no memory"));
  EXPECT_THAT(machine_.unloads, ElementsAre("demo"));
  EXPECT_EQ(machine_.workers.at("other"), 0) << "no call needs them";
  EXPECT_THAT(machine_.adapters, SizeIs(1));
  machine_.loaded("demo", unavailable("another reason"));
  EXPECT_EQ(said()->message, "another reason");
}

TEST_F(AgentFunctionsTest, ALoadBeforeACallTakesNothingFromOthers) {
  ASSERT_TRUE(plan({{"other", 0, {}}}));
  ASSERT_TRUE(plan({{"demo", 0, {}}, {"other", 0, {}}}));
  machine_.loaded("demo", resource_exhausted("no memory"));
  EXPECT_THAT(machine_.unloads, ElementsAre("demo"));
  EXPECT_THAT(machine_.loads, IsEmpty());
}

// ---------------------------------------------------------------- adapters by plan

TEST_F(AgentFunctionsTest, PlannedAdaptersComeOneAtATimeAndLeaveWithTheirPlan) {
  ASSERT_TRUE(plan({{"demo", 0, {"d1", "d2"}}, {"other", 0, {}}}));
  EXPECT_THAT(fetches_, ElementsAre("d1"));
  clock_.advance(seconds(2));
  functions_.adapter_came("d1", std::string("bytes"));
  EXPECT_THAT(fetches_, ElementsAre("d1", "d2"));
  EXPECT_THAT(functions_.adapters(), ElementsAre(AgentAdapter{"demo", "d1", seconds(2)}));
  functions_.adapter_came("d2", std::string("bytes"));
  EXPECT_THAT(functions_.adapters(), SizeIs(2));
  ASSERT_TRUE(start(1, "demo", "d1"));
  EXPECT_THAT(machine_.alive, SizeIs(1)) << "it starts at once";
  ASSERT_TRUE(plan({{"demo", 0, {}}}));
  EXPECT_THAT(functions_.adapters(), SizeIs(1)) << "one is in use";
  end(1);
  EXPECT_THAT(functions_.adapters(), IsEmpty());
  EXPECT_THAT(machine_.adapters, IsEmpty());
}

TEST_F(AgentFunctionsTest, AnAdapterLeavesWithItsBackbone) {
  ASSERT_TRUE(plan({{"demo", 0, {"d1"}}}));
  functions_.adapter_came("d1", std::string("bytes"));
  ASSERT_TRUE(plan({}));
  EXPECT_THAT(machine_.adapters, IsEmpty());
  EXPECT_THAT(functions_.adapters(), IsEmpty());
}

TEST_F(AgentFunctionsTest, APlannedAdapterThatFailsWaitsForTheNextPlanAndHoldsUpNoOther) {
  ASSERT_TRUE(plan({{"demo", 0, {"d1", "d2"}}}));
  functions_.adapter_came("d1", tl::unexpected(unavailable("gone")));
  EXPECT_THAT(fetches_, ElementsAre("d1", "d2"));
  functions_.adapter_came("d2", std::string("broken"));
  EXPECT_THAT(fetches_, SizeIs(2));
  EXPECT_THAT(outputs_, IsEmpty()) << "no call waits";
  ASSERT_TRUE(plan({{"demo", 0, {"d1"}}}));
  EXPECT_THAT(fetches_, ElementsAre("d1", "d2", "d1"));
}

TEST_F(AgentFunctionsTest, AnAdapterThatComesAfterItsBackboneHasLeftIsDropped) {
  machine_.adds_at_once = false;
  ASSERT_TRUE(plan({{"demo", 0, {"d1"}}}));
  functions_.adapter_came("d1", std::string("bytes"));
  ASSERT_TRUE(plan({}));
  machine_.add_adapters();
  EXPECT_THAT(machine_.adapters, IsEmpty());
}

TEST_F(AgentFunctionsTest, ACallGetsThePlannedAdapterThatIsOnItsWay) {
  machine_.adds_at_once = false;
  ASSERT_TRUE(plan({{"demo", 0, {"d1"}}}));
  ASSERT_TRUE(start(1, "demo", "d1"));
  EXPECT_THAT(fetches_, ElementsAre("d1"));
  functions_.adapter_came("d1", std::string("bytes"));
  EXPECT_THAT(machine_.alive, IsEmpty());
  machine_.add_adapters();
  EXPECT_THAT(machine_.alive, SizeIs(1));
}

}  // namespace
}  // namespace sluice
