#include "lending/lending_agent.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>

#include "base/rng.h"
#include "lending/lending_book.h"

namespace sluice {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kLeast = 64 * kMiB;
constexpr std::int64_t kBudget = 896 * kMiB;

TimePoint at(std::int64_t ms) { return TimePoint{} + std::chrono::milliseconds(ms); }

// A process with an agent, over a network that delays and loses messages both ways. Its memory
// follows the limit: upwards as it needs, downwards after a while, as an engine's does.
struct Process {
  Process(const std::string& name, int run)
      : agent({.party = name,
               .device = "cpu",
               .key_prefix = name + std::to_string(run),
               .least = kLeast,
               .most = kLeast + kBudget}) {}

  std::int64_t lent_use() const { return std::max<std::int64_t>(in_use - kLeast, 0); }

  LendingAgent agent;
  std::int64_t need = 0;
  std::int64_t in_use = 0;
  std::int64_t shrinks_at = -1;
  bool waits = false;           // for an answer
  std::int64_t deaf_until = 0;  // partitioned
};

struct Message {
  std::int64_t arrives = 0;
  std::uint64_t process = 0;
  LendRequest request;
};
struct Reply {
  std::int64_t arrives = 0;
  std::uint64_t process = 0;
  std::optional<LendAnswer> answer;  // absent: lost
};

class World {
 public:
  explicit World(std::uint64_t seed)
      : rng_(seed), book_(std::make_unique<LendingBook>(options(), at(0))) {
    for (int i = 0; i < 3; ++i) start(std::string(1, static_cast<char>('a' + i)));
  }

  void step() {
    now_ += 10;
    faults();
    deliver();
    for (auto& [id, process] : processes_) live(id, *process);
    std::int64_t used = 0;
    for (const auto& [id, process] : processes_) used += process->lent_use();
    most_used_ = std::max(most_used_, used);
    ASSERT_LE(used, kBudget) << "at " << now_ << " ms";
    book_->check_integrity();
  }

  std::int64_t most_used() const { return most_used_; }
  int deaths() const { return deaths_; }

 private:
  LendingOptions options() {
    return {.expiry = std::chrono::milliseconds(2000),
            .first_epoch = 1 + rng_() % (std::uint64_t{1} << 50),
            .budgets = {{"cpu", kBudget}}};
  }
  bool chance(std::uint64_t one_in) { return rng_.below(one_in) == 0; }
  std::int64_t delay() { return static_cast<std::int64_t>(rng_.below(40)) * 10; }

  void start(const std::string& name) {
    names_[next_id_] = name;
    processes_.emplace(next_id_, std::make_unique<Process>(name, static_cast<int>(next_id_)));
    ++next_id_;
  }

  void faults() {
    if (chance(700)) book_ = std::make_unique<LendingBook>(options(), at(now_));
    if (chance(300)) {
      const std::uint64_t id = pick();
      processes_.at(id)->deaf_until = now_ + static_cast<std::int64_t>(rng_.below(4000));
    }
    if (chance(400)) {  // a process dies, and another begins by its name
      const std::uint64_t id = pick();
      const std::string name = names_.at(id);
      processes_.erase(id);
      names_.erase(id);
      ++deaths_;
      start(name);
    }
  }
  std::uint64_t pick() {
    auto found = processes_.begin();
    std::advance(found, static_cast<std::ptrdiff_t>(rng_.below(processes_.size())));
    return found->first;
  }

  void deliver() {
    for (std::size_t i = 0; i < messages_.size();) {
      if (messages_[i].arrives > now_) {
        ++i;
        continue;
      }
      const Message message = messages_[i];
      messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(i));
      const LendAnswer answer = book_->handle(at(now_), message.request);
      // Some messages arrive twice.
      if (chance(20)) messages_.push_back({now_ + delay(), 0, message.request});
      if (message.process == 0) continue;
      const bool lost = chance(8);
      replies_.push_back(
          {now_ + delay(), message.process, lost ? std::nullopt : std::optional(answer)});
    }
    for (std::size_t i = 0; i < replies_.size();) {
      if (replies_[i].arrives > now_) {
        ++i;
        continue;
      }
      const Reply reply = replies_[i];
      replies_.erase(replies_.begin() + static_cast<std::ptrdiff_t>(i));
      const auto found = processes_.find(reply.process);
      if (found == processes_.end()) continue;
      Process& process = *found->second;
      process.waits = false;
      if (reply.answer && process.deaf_until <= now_) {
        process.agent.answer(*reply.answer);
      } else {
        process.agent.failed(at(now_));
      }
    }
  }

  void live(std::uint64_t id, Process& process) {
    if (chance(150)) process.need = static_cast<std::int64_t>(rng_.below(1000)) * kMiB;
    const std::int64_t limit = process.agent.limit();
    if (process.in_use > limit) {
      if (process.shrinks_at < 0)
        process.shrinks_at = now_ + static_cast<std::int64_t>(rng_.below(300));
      if (now_ >= process.shrinks_at) process.in_use = limit;
    } else {
      process.shrinks_at = -1;
      process.in_use = std::min(process.need, limit);
    }
    process.agent.update(at(now_), {.limit = limit,
                                    .used = process.in_use,
                                    .backed = process.in_use,
                                    .waiting = process.need > limit ? 1 : 0});
    const auto message = process.agent.next(at(now_));
    if (!message) return;
    process.waits = true;
    if (process.deaf_until > now_ || chance(8)) {
      replies_.push_back({now_ + 500, id, std::nullopt});
    } else {
      messages_.push_back({now_ + delay(), id, *message});
    }
  }

  SplitMix64 rng_;
  std::int64_t now_ = 0;
  std::unique_ptr<LendingBook> book_;
  std::map<std::uint64_t, std::unique_ptr<Process>> processes_;
  std::map<std::uint64_t, std::string> names_;
  std::uint64_t next_id_ = 1;
  std::deque<Message> messages_;
  std::deque<Reply> replies_;
  std::int64_t most_used_ = 0;
  int deaths_ = 0;
};

// Three processes over a bad network, for two minutes each: lost, late and repeated messages,
// partitions, deaths, restarts of the coordinator. The memory that is really in use never exceeds
// the budget.
TEST(LendingAgentRandomTest, MemoryInUseNeverExceedsTheBudget) {
  std::int64_t most = 0;
  int deaths = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    World world(seed);
    for (int i = 0; i < 12'000; ++i) {
      world.step();
      if (HasFatalFailure()) FAIL() << "seed " << seed;
    }
    most = std::max(most, world.most_used());
    deaths += world.deaths();
  }
  EXPECT_EQ(most, kBudget);  // the test reaches the limit
  EXPECT_GT(deaths, 100);
}

class LendingAgentTest : public testing::Test {
 protected:
  // Passes messages both ways without delay until none is due.
  void exchange(std::int64_t ms, LendingAgent& agent, LendingLoad load) {
    for (int i = 0; i < 8; ++i) {
      load.limit = agent.limit();
      agent.update(at(ms), load);
      const auto message = agent.next(at(ms));
      if (!message) return;
      agent.answer(book_.handle(at(ms), *message));
    }
  }
  static LendingAgentOptions options(const std::string& party) {
    return {.party = party,
            .device = "cpu",
            .key_prefix = party,
            .least = kLeast,
            .most = kLeast + kBudget};
  }

  LendingBook book_{{.budgets = {{"cpu", kBudget}}}, at(-10'000)};
};

TEST_F(LendingAgentTest, AloneItHasItsLeast) {
  LendingAgent agent(options("a"));
  agent.update(at(0), {.limit = kLeast, .used = kLeast, .waiting = 3});
  const auto join = agent.next(at(0));
  ASSERT_TRUE(join);
  EXPECT_EQ(join->verb, LendVerb::kJoin);
  EXPECT_FALSE(agent.next(at(0)));  // one at a time
  agent.failed(at(5));
  EXPECT_FALSE(agent.next(at(6)));
  const auto again = agent.next(at(300));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->key, join->key);
  EXPECT_EQ(agent.limit(), kLeast);
  EXPECT_EQ(agent.state(), LendingState::kAlone);
}

// From the least to more than half of the whole in well under a second of virtual time.
TEST_F(LendingAgentTest, ABurstGetsMostOfTheMemory) {
  LendingAgent agent(options("a"));
  LendingAgent idle(options("b"));
  for (std::int64_t ms = 0; ms <= 400; ms += 10) {
    exchange(ms, agent, {.used = agent.limit(), .backed = agent.limit(), .waiting = 9});
    exchange(ms, idle, {});
  }
  EXPECT_GT(agent.limit(), (kLeast + kBudget) / 2);
}

TEST_F(LendingAgentTest, MemoryGoesToTheOneThatNeedsIt) {
  LendingAgent a(options("a"));
  LendingAgent b(options("b"));
  std::int64_t ms = 0;
  for (; ms <= 1000; ms += 10) {
    exchange(ms, a, {.used = a.limit(), .backed = a.limit(), .waiting = 9});
    exchange(ms, b, {});
  }
  EXPECT_EQ(a.limit(), kLeast + kBudget);
  for (const std::int64_t end = ms + 2000; ms <= end; ms += 10) {
    exchange(ms, a, {.used = 0, .backed = std::min(a.limit(), 100 * kMiB)});
    exchange(ms, b, {.used = b.limit(), .backed = b.limit(), .waiting = 9});
  }
  EXPECT_GT(b.limit(), (kLeast + kBudget) / 2);
  // Both busy: each gets its share of the budget back.
  for (const std::int64_t end = ms + 2000; ms <= end; ms += 10) {
    exchange(ms, a, {.used = a.limit(), .backed = a.limit(), .waiting = 9});
    exchange(ms, b, {.used = b.limit(), .backed = b.limit(), .waiting = 9});
  }
  EXPECT_EQ(a.limit(), kLeast + kBudget / 2);
  EXPECT_EQ(b.limit(), kLeast + kBudget / 2);
  EXPECT_GT(a.recalls() + b.recalls(), 0U);
}

// The memory is free before the coordinator lends it to others.
TEST_F(LendingAgentTest, WithoutAnAnswerItGivesUpInTime) {
  LendingAgent agent(options("a"));
  for (std::int64_t ms = 0; ms <= 500; ms += 10) {
    exchange(ms, agent, {.used = agent.limit(), .backed = agent.limit(), .waiting = 9});
  }
  ASSERT_GT(agent.limit(), kLeast);
  std::int64_t ms = 500;
  while (agent.state() == LendingState::kJoined) {
    ms += 10;
    agent.update(at(ms), {.limit = agent.limit(), .used = agent.limit(), .backed = agent.limit()});
    if (agent.next(at(ms))) agent.failed(at(ms));
    ASSERT_LT(ms, 10'000);
  }
  EXPECT_EQ(agent.limit(), kLeast);
  EXPECT_LE(ms, 5'600);
  EXPECT_GT(agent.borrowed(), 0);  // until it is free
  agent.update(at(ms + 10), {.limit = kLeast, .used = kLeast, .backed = kLeast});
  EXPECT_EQ(agent.borrowed(), 0);
}

// A repeat of the join would give it memory that the coordinator has lent to others meanwhile, when
// a new coordinator believes what it is told.
TEST_F(LendingAgentTest, AJoinDoesNotPresentMemoryThatIsFreeAgain) {
  LendingAgent agent(options("a"));
  for (std::int64_t ms = 0; ms <= 500; ms += 10) {
    exchange(ms, agent, {.used = agent.limit(), .backed = agent.limit(), .waiting = 9});
  }
  std::optional<LendRequest> join;
  std::int64_t ms = 500;
  while (!join || join->verb != LendVerb::kJoin) {
    ms += 10;
    agent.update(at(ms), {.limit = kLeast, .used = 2 * kLeast, .backed = 2 * kLeast});
    join = agent.next(at(ms));
    if (join) agent.failed(at(ms));
    ASSERT_LT(ms, 10'000);
  }
  ASSERT_FALSE(join->held.empty());
  // Still in use: it is the same message.
  ms += 300;
  agent.update(at(ms), {.limit = kLeast, .used = 2 * kLeast, .backed = 2 * kLeast});
  EXPECT_EQ(agent.next(at(ms)), join);
  agent.failed(at(ms));
  ms += 300;
  agent.update(at(ms), {.limit = kLeast, .used = kLeast, .backed = kLeast});
  const auto later = agent.next(at(ms));
  ASSERT_TRUE(later);
  EXPECT_EQ(later->verb, LendVerb::kJoin);
  EXPECT_TRUE(later->held.empty());
  EXPECT_NE(later->key, join->key);
}

// A network that was cut delivers the first join after the second one.
TEST_F(LendingAgentTest, ALateJoinOfItsOwnDoesNotFenceIt) {
  LendingAgent agent(options("a"));
  for (std::int64_t ms = 0; ms <= 500; ms += 10) {
    exchange(ms, agent, {.used = agent.limit(), .backed = agent.limit(), .waiting = 9});
  }
  std::vector<LendRequest> late;
  std::int64_t ms = 500;
  const auto lose = [&](std::int64_t used) {
    ms += 300;
    agent.update(at(ms), {.limit = kLeast, .used = used, .backed = used});
    const auto message = agent.next(at(ms));
    ASSERT_TRUE(message);
    agent.failed(at(ms));
    if (message->verb == LendVerb::kJoin) late.push_back(*message);
  };
  while (late.empty()) lose(2 * kLeast);
  lose(kLeast);  // the memory is free, so it presents something else
  ASSERT_NE(late.front().key, late.back().key);
  ms += 300;
  exchange(ms, agent, {.used = kLeast, .backed = kLeast});
  ASSERT_EQ(agent.state(), LendingState::kJoined);
  for (const LendRequest& message : late) book_.handle(at(ms + 1), message);
  exchange(ms + 200, agent, {.used = kLeast, .backed = kLeast});
  EXPECT_EQ(agent.state(), LendingState::kJoined);
}

// The same for a copy of a join that was answered, when the coordinator has forgotten the party.
TEST_F(LendingAgentTest, ALateCopyOfAnAnsweredJoinDoesNotFenceIt) {
  LendingAgent agent(options("a"));
  agent.update(at(0), {.limit = kLeast});
  const auto first = agent.next(at(0));
  ASSERT_TRUE(first);
  agent.answer(book_.handle(at(0), *first));
  const std::int64_t later = 60'000;  // beyond the expiry
  exchange(later, agent, {});
  ASSERT_EQ(agent.state(), LendingState::kJoined);
  EXPECT_EQ(book_.handle(at(later + 1), *first).fault, LendFault::kStaleEpoch);
  exchange(later + 200, agent, {});
  EXPECT_EQ(agent.state(), LendingState::kJoined);
}

TEST_F(LendingAgentTest, AFencedProcessStaysAtItsLeast) {
  LendingAgent agent(options("a"));
  exchange(0, agent, {});
  book_.handle(at(1), {.verb = LendVerb::kJoin, .party = "a", .key = "other", .device = "cpu"});
  exchange(200, agent, {});
  EXPECT_EQ(agent.state(), LendingState::kFenced);
  EXPECT_EQ(agent.limit(), kLeast);
  EXPECT_FALSE(agent.next(at(1000)));
}

TEST_F(LendingAgentTest, AfterARestartItPresentsItsLoans) {
  LendingAgent agent(options("a"));
  for (std::int64_t ms = 0; ms <= 900; ms += 10) {
    exchange(ms, agent, {.used = agent.limit(), .backed = agent.limit(), .waiting = 9});
  }
  const std::int64_t limit = agent.limit();
  ASSERT_EQ(limit, kLeast + kBudget);
  book_ = LendingBook({.first_epoch = 1 << 20, .budgets = {{"cpu", kBudget}}}, at(1000));
  for (std::int64_t ms = 1000; ms <= 1500; ms += 10) {
    exchange(ms, agent, {.used = agent.limit(), .backed = agent.limit(), .waiting = 9});
    ASSERT_EQ(agent.limit(), limit);
  }
  EXPECT_EQ(book_.status(at(1500)).leases[0].lease.lent, kBudget);
}

}  // namespace
}  // namespace sluice
