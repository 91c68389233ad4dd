#include "agents/agent_book.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace sluice {
namespace {

TimePoint at(int ms) { return TimePoint{std::chrono::milliseconds(ms)}; }

class AgentBookTest : public testing::Test {
 protected:
  AgentBookTest() { book_.set_backbones({{"demo", "/models/demo", "d1", 16}}); }

  static AgentJoin message(const std::string& key, const std::string& agent = "a") {
    AgentJoin join;
    join.agent = agent;
    join.key = key;
    join.backbones = {{"demo", "d1"}};
    return join;
  }

  AgentBook book_{std::chrono::seconds(1), 100};
};

TEST_F(AgentBookTest, MessagesAreNumberedAndCountOnce) {
  const std::uint64_t epoch = book_.join(at(0), message("k1")).answer.epoch;
  EXPECT_EQ(book_.check_next("a", epoch, 1).fault, AgentFault::kNone);
  book_.accept(at(0), "a", 1);
  EXPECT_EQ(book_.check_next("a", epoch, 1).fault, AgentFault::kRepeated);
  EXPECT_EQ(book_.check_next("a", epoch, 3).fault, AgentFault::kBadRequest);
  EXPECT_EQ(book_.check_next("a", epoch, 2).fault, AgentFault::kNone);
}

TEST_F(AgentBookTest, ALaterProcessFencesTheOneBefore) {
  const std::uint64_t first = book_.join(at(0), message("k1")).answer.epoch;
  const AgentBook::Joined second = book_.join(at(1), message("k2"));
  EXPECT_TRUE(second.is_new);
  EXPECT_EQ(book_.check_next("a", first, 1).fault, AgentFault::kStaleEpoch);
  EXPECT_EQ(book_.check(at(1), "a", first).fault, AgentFault::kStaleEpoch);
  EXPECT_EQ(book_.join(at(2), message("k1")).answer.fault, AgentFault::kStaleEpoch);
  const AgentBook::Joined repeated = book_.join(at(2), message("k2"));
  EXPECT_FALSE(repeated.is_new);
  EXPECT_EQ(repeated.answer.epoch, second.answer.epoch);
}

TEST_F(AgentBookTest, AProcessThatWasReplacedDoesNotReplaceItsReplacement) {
  book_.join(at(0), message("k1"));
  const std::uint64_t second = book_.join(at(1), message("k2")).answer.epoch;
  AgentJoin again = message("k3");
  again.earlier_joins = {"k1"};
  EXPECT_EQ(book_.join(at(2), again).answer.fault, AgentFault::kStaleEpoch);
  EXPECT_EQ(book_.check(at(2), "a", second).fault, AgentFault::kNone);
  // The present process may, and each one may once the name is free.
  again.earlier_joins = {"k2"};
  EXPECT_EQ(book_.join(at(3), again).answer.fault, AgentFault::kNone);
  book_.remove("a");
  again.key = "k4";
  again.earlier_joins = {"k1"};
  EXPECT_EQ(book_.join(at(4), again).answer.fault, AgentFault::kNone);
}

// A network that was cut delivers copies of a join after it was answered.
TEST_F(AgentBookTest, ALateJoinOfItsOwnDoesNotShutAProcessOut) {
  static_cast<void>(book_.join(at(0), message("k1")));
  ASSERT_EQ(book_.advance(at(1000)), std::vector<std::string>{"a"});
  // The book knows nothing of it any more, so it cannot tell that it is late.
  EXPECT_TRUE(book_.join(at(1001), message("k1")).is_new);
  AgentJoin next = message("k2");
  next.earlier_joins = {"k1"};
  const AgentBook::Joined joined = book_.join(at(1002), next);
  ASSERT_EQ(joined.answer.fault, AgentFault::kNone) << joined.answer.message;
  EXPECT_TRUE(joined.is_new);
}

TEST_F(AgentBookTest, ALateJoinOfItsOwnDoesNotFenceAProcess) {
  static_cast<void>(book_.join(at(0), message("k1")));
  static_cast<void>(book_.advance(at(1000)));
  AgentJoin next = message("k2");
  next.earlier_joins = {"k1"};
  const std::uint64_t epoch = book_.join(at(1001), next).answer.epoch;
  EXPECT_EQ(book_.join(at(1002), message("k1")).answer.fault, AgentFault::kStaleEpoch);
  EXPECT_EQ(book_.check(at(1003), "a", epoch).fault, AgentFault::kNone);
}

TEST_F(AgentBookTest, OnlyMessagesThatCountRenewTheLease) {
  const std::uint64_t epoch = book_.join(at(0), message("k1")).answer.epoch;
  static_cast<void>(book_.check_next("a", epoch, 7));
  static_cast<void>(book_.check(at(900), "a", epoch - 1));
  EXPECT_TRUE(book_.advance(at(999)).empty());
  EXPECT_EQ(book_.advance(at(1000)), std::vector<std::string>{"a"});
  EXPECT_EQ(book_.check_next("a", epoch, 1).fault, AgentFault::kUnknownAgent);
  EXPECT_EQ(book_.size(), 0U);
}

TEST_F(AgentBookTest, AJoinWithAnotherModelChangesNothing) {
  AgentJoin other = message("k");
  other.backbones = {{"demo", "d2"}};
  const AgentAnswer differs = book_.join(at(0), other).answer;
  EXPECT_EQ(differs.fault, AgentFault::kBadRequest);
  EXPECT_NE(differs.message.find("the checkpoints differ"), std::string::npos);
  other.backbones = {{"demi", "d1"}};
  EXPECT_EQ(book_.join(at(0), other).answer.fault, AgentFault::kUnknownName);
  EXPECT_EQ(book_.join(at(0), message("k", "a/b")).answer.fault, AgentFault::kBadRequest);
  EXPECT_EQ(book_.join(at(0), message("")).answer.fault, AgentFault::kBadRequest);
  AgentJoin unnamed = message("k");
  unnamed.earlier_joins = {"a b"};
  EXPECT_EQ(book_.join(at(0), unnamed).answer.fault, AgentFault::kBadRequest);
  EXPECT_EQ(book_.size(), 0U);
}

TEST_F(AgentBookTest, NoAgentJoinsBeforeTheBackbonesAreKnown) {
  AgentBook early(std::chrono::seconds(1), 1);
  EXPECT_EQ(early.join(at(0), message("k")).answer.fault, AgentFault::kNotReady);
}

}  // namespace
}  // namespace sluice
