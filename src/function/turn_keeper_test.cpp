#include "function/turn_keeper.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "function/turn_gate.h"

namespace sluice {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::HasSubstr;

// A process without a process.
struct ProcessState {
  Duration cpu{0};
  bool stopped = false;
  bool killed = false;
};
class FakeProcess final : public TurnProcess {
 public:
  explicit FakeProcess(ProcessState& state) : state_(state) {}
  Duration cpu_time() const override { return state_.cpu; }
  void stop() override { state_.stopped = true; }
  void resume() override { state_.stopped = false; }
  void kill() override { state_.killed = true; }

 private:
  ProcessState& state_;
};

// A function whose end the test writes by hand.
class Hand {
 public:
  Hand(TurnKeeper& keeper, const std::string& tenant, bool watched = true,
       Duration slow_step = Duration(0))
      : keeper_(keeper),
        pages_(*TurnPages::create()),
        seat_(keeper.add(pages_, tenant, slow_step)) {
    request_ = *map_request(pages_.request_fd());
    grant_ = *map_grant(pages_.grant_fd());
    keeper_.attach(seat_, std::make_unique<FakeProcess>(process));
    if (watched) keeper_.watch_cpu(seat_);
  }
  ~Hand() { keeper_.remove(seat_); }

  void ask() { request_->word.store(turn_word(returned_, true)); }
  void withdraw() { request_->word.store(turn_word(returned_, false)); }
  void give_back(bool wants) { request_->word.store(turn_word(++returned_, wants)); }
  void write(std::uint32_t word) { request_->word.store(word); }
  bool computes() const {
    return grant_->turn.load() == turn_word(returned_ + 1, true) && !process.stopped;
  }
  bool wanted_back(TimePoint now) const {
    return grant_->return_after.load() <= now.since_start.count();
  }
  Duration turn_time() const { return keeper_.turn_time(seat_); }
  Duration waited() const { return keeper_.waited(seat_); }
  std::optional<Error> failure() const { return keeper_.failure(seat_); }
  void set_tenant(const std::string& tenant) { keeper_.set_tenant(seat_, tenant); }
  void set_due(std::optional<TimePoint> due) { keeper_.set_due(seat_, due); }

  ProcessState process;

 private:
  TurnKeeper& keeper_;
  TurnPages pages_;
  TurnKeeper::SeatId seat_;
  MappedPage<TurnRequest> request_;
  MappedPage<const TurnGrant> grant_;
  std::uint32_t returned_ = 0;
};

class TurnKeeperTest : public testing::Test {
 protected:
  TurnKeeperTest() { clock_.advance(100s); }

  std::optional<TimePoint> pass(Duration time = Duration(0)) {
    clock_.advance(time);
    const auto next = keeper_.attend();
    keeper_.check_integrity();
    return next;
  }
  // `holder` gets the turn and does not return it to `other`, until it is stopped.
  void keep_turn(Hand& holder, Hand& other) {
    holder.ask();
    pass();
    other.ask();
    pass();
    pass(kOptions.quantum + kOptions.suspend_after);
    ASSERT_TRUE(holder.process.stopped);
  }
  std::map<std::string, Duration> usage() const {
    std::map<std::string, Duration> usage;
    for (const auto& [tenant, time] : keeper_.totals().usage) usage[tenant] = time;
    return usage;
  }

  static constexpr TurnKeeper::Options kOptions{};
  ManualClock clock_;
  TurnKeeper keeper_{kOptions, clock_};
};

TEST_F(TurnKeeperTest, AFunctionThatIsAloneKeepsItsTurn) {
  Hand a(keeper_, "a");
  EXPECT_FALSE(pass());  // until a bell rings
  a.ask();
  EXPECT_TRUE(pass());
  EXPECT_TRUE(a.computes());
  for (int i = 0; i < 100; ++i) {
    a.process.cpu += 1s;
    pass(1s);
    ASSERT_TRUE(a.computes() && !a.wanted_back(clock_.now()));
  }
  EXPECT_EQ(a.turn_time(), Duration(100s));
  clock_.advance(1s);
  EXPECT_EQ(a.turn_time(), Duration(101s)) << "also the time that no pass has charged";
  a.give_back(false);
  EXPECT_FALSE(pass());
  EXPECT_FALSE(a.computes());
  EXPECT_EQ(usage()["a"], Duration(101s));
  EXPECT_EQ(a.turn_time(), Duration(101s));
}

TEST_F(TurnKeeperTest, OthersGetTheirTurnAfterAQuantumAtAStepsBorder) {
  Hand a(keeper_, "a");
  Hand b(keeper_, "b");
  a.ask();
  pass();
  b.ask();
  pass(1ms);
  EXPECT_FALSE(a.wanted_back(clock_.now()));
  EXPECT_TRUE(a.wanted_back(clock_.now() + (kOptions.quantum - 1ms)));
  EXPECT_FALSE(b.computes());
  a.give_back(true);
  pass(30ms);  // the step was longer than the quantum
  EXPECT_TRUE(b.computes());
  // This tenant first gets as much time as the other one has had.
  EXPECT_FALSE(b.wanted_back(clock_.now() + 29ms));
  EXPECT_TRUE(b.wanted_back(clock_.now() + 31ms));
  b.withdraw();  // without a return: it still has its turn
  pass();
  EXPECT_TRUE(b.computes());
  b.give_back(false);
  pass(5ms);
  EXPECT_TRUE(a.computes());
  EXPECT_FALSE(a.wanted_back(clock_.now() + 1s));
  EXPECT_EQ(usage(), (std::map<std::string, Duration>{{"a", 31ms}, {"b", 5ms}}));
  EXPECT_EQ(a.turn_time(), Duration(31ms));
  EXPECT_EQ(b.turn_time(), Duration(5ms));
}

TEST_F(TurnKeeperTest, TheSiblingThatIsDueFirstIsNextAndThenWaitsForTheOthers) {
  Hand silent(keeper_, "a");  // never answers its request
  Hand late(keeper_, "a");
  Hand early(keeper_, "a");
  silent.set_due(clock_.now() + (-10s));
  late.set_due(clock_.now() + 20ms);
  early.set_due(clock_.now() + 10ms);
  for (Hand* hand : {&late, &early, &silent}) hand->ask();
  pass();
  EXPECT_TRUE(silent.computes());
  silent.give_back(true);
  pass(5ms);
  EXPECT_TRUE(early.computes());
  early.give_back(false);
  pass(5ms);
  EXPECT_TRUE(late.computes());
  // Its answer counts also while it waits.
  late.give_back(true);
  late.set_due(clock_.now() + kOptions.due_after_turn + 1ms);
  pass();
  EXPECT_TRUE(silent.computes());
  silent.give_back(true);
  pass(1ms);
  EXPECT_TRUE(late.computes());
  // A function that has nothing to answer has work all the same.
  early.set_due(std::nullopt);
  early.ask();
  silent.set_due(clock_.now() + 1s);
  late.give_back(false);
  pass(1ms);
  EXPECT_TRUE(early.computes());
}

// Random lives of siblings, some of which never answer: once one is due, each other one has at most
// one turn before it.
TEST_F(TurnKeeperTest, NoSiblingGoesAheadOfOneThatIsDueTwice) {
  constexpr std::size_t kHands = 5;
  SplitMix64 rng(7);
  std::vector<std::unique_ptr<Hand>> hands;
  std::vector<TimePoint> owed(kHands, clock_.now());
  std::vector<TimePoint> floor(kHands);
  std::vector<bool> waits(kHands, true);
  std::vector<std::vector<int>> passed(kHands, std::vector<int>(kHands));
  for (std::size_t i = 0; i < kHands; ++i) {
    hands.push_back(std::make_unique<Hand>(keeper_, "a"));
    hands[i]->set_due(owed[i]);
    hands[i]->ask();
  }
  pass();
  std::size_t turns = 0;
  for (int round = 0; round < 4000; ++round) {
    clock_.advance(Duration(1'000'000 * static_cast<std::int64_t>(1 + rng.below(30))));
    for (std::size_t i = 0; i < kHands; ++i) {
      const bool computed = hands[i]->computes();
      if (computed) {
        floor[i] = clock_.now() + kOptions.due_after_turn;
        waits[i] = rng.below(8) != 0;
        std::ranges::fill(passed[i], 0);
        hands[i]->give_back(waits[i]);
      } else if (!waits[i] && rng.below(4) == 0) {
        waits[i] = true;
        std::ranges::fill(passed[i], 0);
        hands[i]->ask();
      }
      // The last two never answer. A new request is due at its goal, which may be over at once.
      if (i >= kHands - 2 || !computed) continue;
      const Duration goal(kFirstTokenDue.count() * static_cast<std::int64_t>(rng.below(11)) / 10);
      owed[i] = clock_.now() + (rng.below(4) == 0 ? goal : kNextTokenDue);
      hands[i]->set_due(owed[i]);
    }
    pass();
    for (std::size_t next = 0; next < kHands; ++next) {
      if (!hands[next]->computes()) continue;
      ++turns;
      for (std::size_t i = 0; i < kHands; ++i) {
        if (i == next || !waits[i] || std::max(owed[i], floor[i]) > clock_.now()) continue;
        ASSERT_LE(++passed[i][next], 1) << "round " << round << ", " << next << " before " << i;
      }
    }
  }
  EXPECT_GT(turns, 3000U);
}

TEST_F(TurnKeeperTest, AFunctionThatNoLongerWantsATurnGetsNone) {
  Hand a(keeper_, "a");
  Hand b(keeper_, "b");
  a.ask();
  pass();
  b.ask();
  pass();
  b.withdraw();
  pass();
  EXPECT_FALSE(a.wanted_back(clock_.now() + 1s));
  a.give_back(false);
  EXPECT_FALSE(pass(1ms));
  EXPECT_FALSE(b.computes());
}

TEST_F(TurnKeeperTest, AsManyComputeAtATimeAsThereArePlaces) {
  TurnKeeper::Options options;
  options.places = 2;
  TurnKeeper keeper(options, clock_);
  Hand a(keeper, "a");
  Hand b(keeper, "b");
  Hand c(keeper, "c");
  for (Hand* hand : {&a, &b, &c}) hand->ask();
  keeper.attend();
  EXPECT_TRUE(a.computes() && b.computes() && !c.computes());
  clock_.advance(kOptions.quantum);
  keeper.attend();
  // One waits, so one turn is wanted back.
  EXPECT_NE(a.wanted_back(clock_.now()), b.wanted_back(clock_.now()));
  keeper.check_integrity();
}

TEST_F(TurnKeeperTest, ATurnThatIsNotReturnedIsTakenAndGoesOnLater) {
  Hand a(keeper_, "a");
  Hand b(keeper_, "b");
  a.ask();
  pass();
  b.ask();
  pass();
  pass(kOptions.quantum + kOptions.suspend_after - 1ms);
  EXPECT_TRUE(a.computes());
  const auto next = pass();
  ASSERT_TRUE(next);
  EXPECT_EQ(*next - clock_.now(), 1ms);
  pass(1ms);
  EXPECT_TRUE(a.process.stopped);
  EXPECT_TRUE(b.computes());
  EXPECT_EQ(keeper_.totals().suspensions, 1);
  // It is weakened: the other one is not asked to return its turn.
  pass(1s);
  EXPECT_FALSE(b.wanted_back(clock_.now() + 1s));
  b.give_back(true);
  pass(1s);
  EXPECT_TRUE(b.computes() && a.process.stopped);
  // Once no other one waits it goes on with the same turn.
  b.give_back(false);
  pass();
  EXPECT_TRUE(a.computes());
  b.ask();
  pass();
  EXPECT_TRUE(a.wanted_back(clock_.now() + kOptions.quantum));
  a.give_back(true);
  pass(1ms);
  EXPECT_TRUE(b.computes() && !a.computes());
  EXPECT_FALSE(a.process.killed);
}

TEST_F(TurnKeeperTest, AProcessThatIsStoppedRightAfterItsReturnGoesOn) {
  Hand a(keeper_, "a");
  Hand b(keeper_, "b");
  ASSERT_NO_FATAL_FAILURE(keep_turn(a, b));
  pass(kOptions.weak_for);  // it is no longer weakened, and next
  b.give_back(true);
  pass(1s);
  ASSERT_TRUE(a.computes());
  pass(1s);  // it has had its share, and is stopped again without being weakened
  pass(10ms);
  ASSERT_TRUE(a.process.stopped && !a.failure());
  a.give_back(false);
  pass(1ms);
  EXPECT_FALSE(a.process.stopped);
  a.ask();
  b.give_back(false);
  pass(1ms);
  EXPECT_TRUE(a.computes());
  EXPECT_EQ(keeper_.totals().suspensions, 1);
}

TEST_F(TurnKeeperTest, ATurnWithoutEndIsEndedWithItsProcess) {
  Hand spinner(keeper_, "spinner");
  Hand sibling(keeper_, "sibling");
  spinner.ask();
  pass();
  sibling.ask();
  Duration gap{0};
  Duration first_gap{0};
  Duration longest_later{0};
  Duration time{0};
  // The sibling's steps take 10 ms.
  for (; !spinner.process.killed && time < 600s; time += 1ms) {
    gap += 1ms;
    if (sibling.computes() && time % 10ms == 0ms) {
      if (first_gap == 0ms) first_gap = gap;
      if (time > 1s) longest_later = std::max(longest_later, gap);
      gap = Duration(0);
      sibling.give_back(true);
    }
    pass(1ms);
  }
  EXPECT_TRUE(spinner.process.killed);
  EXPECT_THAT(spinner.failure()->message, HasSubstr("kept its turn"));
  EXPECT_TRUE(sibling.computes());
  EXPECT_LE(first_gap, kOptions.quantum + kOptions.suspend_after + 20ms);
  // Nothing while the spinner is weakened, and equal shares then, until its process is killed.
  EXPECT_LE(longest_later, 31ms);
  EXPECT_LE(time, kOptions.weak_for + 3 * kOptions.kill_after);
  EXPECT_EQ(keeper_.totals().suspensions, 1);
  EXPECT_EQ(keeper_.totals().kills, 1);
  spinner.ask();  // a dead process gets nothing
  pass(1s);
  EXPECT_TRUE(sibling.computes());
}

// A function whose steps take long beside one whose steps take 10 ms; both always have work.
struct LongSteps {
  int steps = 0;
  Duration longest_step{0};  // from its begin to its end
  Duration longest_gap{0};   // of the other one
  double share = 0;          // of the turn time
};
LongSteps run_beside(TurnKeeper& keeper, ManualClock& clock, Hand& slow, Hand& quick, Duration step,
                     Duration length) {
  LongSteps found;
  Duration computed{0};
  Duration lasted{0};
  Duration gap{0};
  slow.ask();
  quick.ask();
  for (Duration time{0}; time < length; time += 1ms) {
    keeper.attend();
    keeper.check_integrity();
    clock.advance(1ms);
    gap += 1ms;
    lasted += 1ms;
    found.longest_gap = std::max(found.longest_gap, gap);
    if (slow.computes() && (computed += 1ms) == step) {
      ++found.steps;
      found.longest_step = std::max(found.longest_step, lasted);
      computed = lasted = Duration(0);
      slow.give_back(true);
    }
    if (quick.computes() && time % 10ms == 0ms) {
      gap = Duration(0);
      quick.give_back(true);
    }
  }
  found.share = to_seconds(slow.turn_time()) / to_seconds(slow.turn_time() + quick.turn_time());
  return found;
}

TEST_F(TurnKeeperTest, AFunctionWhoseShortestStepIsLongHasItsShareAndIsNotWeakened) {
  Hand slow(keeper_, "slow", true, 2s);
  Hand quick(keeper_, "quick");
  const LongSteps found = run_beside(keeper_, clock_, slow, quick, 1500ms, 60s);
  EXPECT_EQ(keeper_.totals().suspensions, 0);
  EXPECT_NEAR(found.share, 0.5, 0.02);
  EXPECT_GE(found.steps, 18);
  EXPECT_LE(found.longest_step, 3600ms);
  EXPECT_LE(found.longest_gap, kOptions.quantum + kOptions.suspend_after + 20ms);
}

TEST_F(TurnKeeperTest, LongStepsThatEndedAreNoReasonToWeakenAgain) {
  Hand slow(keeper_, "slow");
  Hand quick(keeper_, "quick");
  const LongSteps found = run_beside(keeper_, clock_, slow, quick, 900ms, 60s);
  EXPECT_EQ(keeper_.totals().suspensions, 1);  // the first one
  EXPECT_GE(found.steps, 25);
  EXPECT_LE(found.longest_gap, kOptions.quantum + kOptions.suspend_after + 20ms);
}

TEST_F(TurnKeeperTest, NoStepIsExpectedToTakeLongerThanTheLimit) {
  Hand spinner(keeper_, "spinner", true, 1000s);
  Hand quick(keeper_, "quick");
  run_beside(keeper_, clock_, spinner, quick, 1000s, 59s);
  EXPECT_EQ(keeper_.totals().suspensions, 0);
  const Duration before = spinner.turn_time();
  const LongSteps later = run_beside(keeper_, clock_, spinner, quick, 1000s, 5s);
  EXPECT_EQ(keeper_.totals().suspensions, 1);
  EXPECT_LE(spinner.turn_time() - before, 2s) << "it is weakened";
  EXPECT_LE(later.longest_gap, 31ms);
}

TEST_F(TurnKeeperTest, APauseOfTheMachineIsNoTurn) {
  Hand a(keeper_, "a");
  Hand b(keeper_, "b");
  a.ask();
  pass();
  b.ask();
  pass(10ms);
  a.process.cpu += 10ms;
  pass(100ms);
  a.process.cpu += 100ms;
  pass(200s);
  EXPECT_FALSE(a.failure());
  EXPECT_EQ(keeper_.totals().suspensions, 0);
  EXPECT_LE(a.turn_time(), 300ms);
  pass();
  EXPECT_TRUE(b.computes());
  b.give_back(false);
  pass(10ms);
  EXPECT_TRUE(a.computes());
  a.give_back(false);
  pass(1ms);
  EXPECT_FALSE(a.process.stopped);
  // If only the server was paused, it computed meanwhile.
  a.ask();
  pass(1ms);
  const Duration before = a.turn_time();
  a.process.cpu += 20s;  // on two threads
  pass(10s);
  EXPECT_EQ(a.turn_time() - before, 10s);
}

TEST_F(TurnKeeperTest, AWeakenedFunctionRecoversWhenItReturnsItsTurn) {
  for (const bool just_before : {false, true}) {
    SCOPED_TRACE(just_before);
    Hand a(keeper_, "a");
    Hand b(keeper_, "b");
    ASSERT_NO_FATAL_FAILURE(keep_turn(a, b));
    if (just_before) {
      a.give_back(false);  // its answer is complete
      pass(1ms);
      EXPECT_FALSE(a.process.stopped) << "it could neither send its tokens nor read a request";
      b.give_back(false);
    } else {
      b.give_back(false);
      pass(1ms);
      ASSERT_TRUE(a.computes());
      a.give_back(false);
    }
    pass(1ms);
    b.ask();
    pass(1ms);
    ASSERT_TRUE(b.computes());
    a.ask();
    pass();
    const Duration before = a.waited();
    pass(3ms);
    EXPECT_EQ(a.waited() - before, 3ms);
    EXPECT_TRUE(b.wanted_back(clock_.now() + 1s)) << "as for any other function";
  }
}

TEST_F(TurnKeeperTest, AReturnedTurnDoesNotMakeUpForComputingWithoutOne) {
  Hand thief(keeper_, "thief");
  for (int i = 0; i < 10 && !thief.process.stopped; ++i) {
    thief.process.cpu += 100ms;
    pass(100ms);
  }
  ASSERT_TRUE(thief.process.stopped);
  thief.ask();
  pass();
  ASSERT_TRUE(thief.computes()) << "no other function waits";
  Hand other(keeper_, "other");
  other.ask();
  pass(1ms);
  thief.give_back(true);
  pass(1ms);
  EXPECT_TRUE(other.computes());
  pass(1s);
  EXPECT_FALSE(other.wanted_back(clock_.now() + 1s)) << "it is still weakened";
}

TEST_F(TurnKeeperTest, AProcessThatComputesWithoutATurnIsStoppedThenKilled) {
  Hand thief(keeper_, "thief");
  Hand a(keeper_, "a");
  a.ask();
  pass();
  int stops = 0;
  for (int i = 0; i < 300 && !thief.process.killed; ++i) {
    const bool was_stopped = thief.process.stopped;
    if (!was_stopped) thief.process.cpu += 100ms;  // all of one core
    a.process.cpu += 100ms;
    pass(100ms);
    stops += thief.process.stopped && !was_stopped ? 1 : 0;
    ASSERT_FALSE(a.process.stopped);
  }
  EXPECT_EQ(stops, kOptions.strikes_to_kill - 1);
  EXPECT_TRUE(thief.process.killed);
  EXPECT_THAT(thief.failure()->message, HasSubstr("without a turn"));
}

// A thread that reads the time may wait for a core right after it, while a function computes.
class InterruptedClock final : public Clock {
 public:
  TimePoint now() const override {
    const TimePoint time = clock.now();
    if (const auto event = std::exchange(interruption, nullptr)) event();
    return time;
  }

  ManualClock clock;
  mutable std::function<void()> interruption;  // after the next reading
};

TEST(TurnKeeperClockTest, ATurnLastsWhileTheKeeperWaitsForACore) {
  for (const bool returns : {true, false}) {
    InterruptedClock clock;
    TurnKeeper keeper({}, clock);
    Hand a(keeper, "a");
    a.ask();
    keeper.attend();
    clock.clock.advance(100ms);
    a.process.cpu += 100ms;
    clock.interruption = [&] {
      clock.clock.advance(500ms);
      a.process.cpu += 500ms;
      if (returns) a.give_back(false);
    };
    keeper.attend();
    EXPECT_FALSE(a.process.stopped) << returns;
    EXPECT_EQ(a.turn_time(), 600ms) << returns;
    EXPECT_EQ(keeper.totals().suspensions, 0) << returns;
  }
}

TEST_F(TurnKeeperTest, TheLogSaysWhatAFunctionComputedWithoutATurn) {
  Hand thief(keeper_, "mallory");
  Hand a(keeper_, "a");
  a.ask();
  pass();
  testing::internal::CaptureStderr();
  for (int i = 0; i < 5; ++i) {
    thief.process.cpu += 100ms;
    pass(100ms);
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("a function of 'mallory' computes without a turn: in 0.40 s it used "
                             "0.40 s of CPU time, and its turns were 0.00 s"));
}

TEST_F(TurnKeeperTest, OldStrikesAreForgotten) {
  Hand rare(keeper_, "rare");
  for (int strike = 0; strike < 5; ++strike) {
    for (int i = 0; i < 50 && !rare.process.stopped; ++i) {
      rare.process.cpu += 100ms;
      pass(100ms);
    }
    ASSERT_TRUE(rare.process.stopped) << strike;
    pass(kOptions.forgive_after);
    ASSERT_FALSE(rare.process.stopped || rare.process.killed) << strike;
  }
}

TEST_F(TurnKeeperTest, FramesCostAFunctionNothing) {
  Hand a(keeper_, "a");
  Hand starting(keeper_, "starting", /*watched=*/false);
  a.ask();
  pass();
  for (int i = 0; i < 100; ++i) {
    a.give_back(false);
    a.process.cpu += 20ms;  // a fifth of a core, outside of turns
    starting.process.cpu += 100ms;
    pass(100ms);
    ASSERT_FALSE(a.process.stopped || starting.process.stopped);
    a.ask();
    pass();
    a.process.cpu += 100ms;
    pass(100ms);
  }
}

TEST_F(TurnKeeperTest, TheSpareFunctionsTurnsBecomeItsTenants) {
  Hand spare(keeper_, "");
  spare.set_tenant("alice");
  spare.ask();
  pass();
  pass(1s);
  EXPECT_EQ(usage()["alice"], Duration(1s));
  EXPECT_EQ(usage()[""], Duration(0));
}

// Functions that write any words and pause at any moment: the invariants hold, and a function that
// keeps to the protocol is served.
TEST(TurnKeeperProperty, FunctionsThatLieHarmOnlyThemselves) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    SplitMix64 rng(seed);
    ManualClock clock;
    clock.advance(1s);
    TurnKeeper::Options options;
    options.kill_after = 5s;
    TurnKeeper keeper(options, clock);
    std::vector<std::unique_ptr<Hand>> liars;
    for (int i = 0; i < 4; ++i) {
      liars.push_back(std::make_unique<Hand>(keeper, "liar" + std::to_string(i % 2)));
    }
    Hand honest(keeper, "honest");
    honest.ask();
    Duration longest{0};
    Duration waited{0};
    int turns = 0;
    for (int i = 0; i < 5000; ++i) {
      const Duration step(static_cast<std::int64_t>(rng.below(20'000'000)));
      clock.advance(step);
      for (auto& liar : liars) {
        if (rng.below(2) > 0) liar->write(static_cast<std::uint32_t>(rng.below(64)));
        liar->process.cpu += step * static_cast<std::int64_t>(rng.below(2));
      }
      waited += step;
      longest = std::max(longest, waited);
      if (honest.computes()) {
        waited = Duration(0);
        honest.give_back(true);
        ++turns;
      }
      const auto next = keeper.attend();
      ASSERT_TRUE(next && *next > clock.now());
      keeper.check_integrity();
    }
    EXPECT_FALSE(honest.process.stopped || honest.failure());
    EXPECT_GT(turns, 500);
    EXPECT_LE(longest, 4 * (TurnKeeper::Options().suspend_after + 50ms));
  }
}

// The function's end in a thread, on the system's clock.
TEST(TurnGateTest, WaitsForItsTurnAndReturnsItWhenOthersWait) {
  const SystemClock clock;
  TurnKeeper keeper({}, clock);
  TurnPages pages = *TurnPages::create();
  const auto seat = keeper.add(pages, "a");
  const auto gate = *TurnGate::open(pages.grant_fd(), pages.request_fd(), pages.bell_fd(), clock);
  std::atomic<int> steps = 0;
  std::thread engine([&] {
    for (int i = 0; i < 3; ++i) {
      gate->enter();
      ++steps;
      gate->leave(/*more=*/i < 2);
    }
  });
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(steps, 0);
  while (pages.request().word.load() == 0) std::this_thread::yield();
  keeper.attend();
  engine.join();
  EXPECT_EQ(steps, 3);
  EXPECT_EQ(pages.request().word.load(), turn_word(1, false));  // one turn for all
  keeper.attend();

  // Another one waits, so each step has a turn of its own, and the stop ends the wait.
  Hand other(keeper, "b");
  std::atomic<bool> wanted = false;
  std::thread waiting([&] {
    gate->enter();
    ++steps;
    wanted.wait(false);
    std::this_thread::sleep_for(10ms);  // longer than the quantum
    gate->leave(true);
    gate->enter();
    ++steps;
  });
  while (pages.request().word.load() != turn_word(1, true)) std::this_thread::yield();
  keeper.attend();
  EXPECT_EQ(gate->longest_step(), TurnGate::kLongestStep);
  EXPECT_LE(2 * TurnGate::kLongestStep, TurnKeeper::Options().suspend_after);
  other.ask();
  keeper.attend();
  EXPECT_EQ(gate->longest_step(), TurnGate::kSharedStep);
  wanted = true;
  wanted.notify_all();
  while (pages.request().word.load() != turn_word(2, true)) std::this_thread::yield();
  keeper.attend();
  EXPECT_TRUE(other.computes());
  EXPECT_EQ(steps, 4);
  gate->stop();
  waiting.join();
  EXPECT_EQ(steps, 5);
  keeper.remove(seat);
}

TEST(TurnPageTest, OnlyTheServerWritesTheGrant) {
  const TurnPages pages = *TurnPages::create();
  EXPECT_FALSE(map_request(pages.grant_fd()));  // its size differs
  const std::string path = "/proc/self/fd/" + std::to_string(pages.grant_fd());
  const FileDescriptor again(open(path.c_str(), O_RDWR | O_CLOEXEC));
  for (const int fd : {pages.grant_fd(), again.get()}) {
    EXPECT_EQ(mmap(nullptr, sizeof(TurnGrant), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0),
              MAP_FAILED);
    EXPECT_NE(pwrite(fd, "x", 1, 0), 1);
    EXPECT_NE(ftruncate(fd, 0), 0);
    EXPECT_NE(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 8), 0);
  }
  const auto grant = map_grant(pages.grant_fd());
  ASSERT_TRUE(grant);
  void* const mapped = const_cast<TurnGrant*>(grant->get());
  EXPECT_NE(mprotect(mapped, sizeof(TurnGrant), PROT_READ | PROT_WRITE), 0);
  const UrgentBoard board = *UrgentBoard::create();
  EXPECT_FALSE(map_grant(board.reader_fd()));
  EXPECT_TRUE(map_urgent_count(board.reader_fd()));
  EXPECT_FALSE(map_grant(-1));
}

}  // namespace
}  // namespace sluice
