#include "membership/member_table.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace sluice {
namespace {

TimePoint at(int ms) { return TimePoint{std::chrono::milliseconds(ms)}; }

MemberTable table(std::size_t most = 3) {
  return MemberTable(std::chrono::milliseconds(1000), 10, most);
}

TEST(MemberTable, EachJoinHasAnEpochThatFencesTheOneBefore) {
  MemberTable members = table();
  EXPECT_EQ(members.classify("a", "k1"), JoinKind::kNew);
  EXPECT_EQ(members.standing("a", 10), Standing::kUnknown);
  const std::uint64_t first = members.join(at(0), "a", "k1");
  EXPECT_EQ(first, 10U);
  EXPECT_EQ(members.standing("a", first), Standing::kMember);
  EXPECT_EQ(members.classify("a", "k2"), JoinKind::kReplaces);
  const std::uint64_t second = members.join(at(1), "a", "k2");
  EXPECT_GT(second, first);
  EXPECT_EQ(members.standing("a", first), Standing::kStaleEpoch);
  EXPECT_EQ(members.standing("a", second), Standing::kMember);
}

TEST(MemberTable, AJoinThatComesTwiceIsOneAndALateOneIsRefused) {
  MemberTable members = table();
  members.join(at(0), "a", "k1");
  EXPECT_EQ(members.classify("a", "k1"), JoinKind::kRepeated);
  members.join(at(1), "a", "k2");
  EXPECT_EQ(members.classify("a", "k1"), JoinKind::kOver);
  EXPECT_EQ(members.classify("a", "k2"), JoinKind::kRepeated);
}

TEST(MemberTable, AJoinThatALaterOneNamesIsRefused) {
  MemberTable members = table();
  const std::vector<std::string> earlier = {"k1", "k2"};
  members.join(at(0), "a", "k3", earlier);
  EXPECT_EQ(members.classify("a", "k1"), JoinKind::kOver);
  EXPECT_EQ(members.classify("a", "k2"), JoinKind::kOver);
  EXPECT_EQ(members.classify("a", "k3"), JoinKind::kRepeated);
  const std::vector<std::string> known = {"k3"};  // it had arrived
  members.join(at(1), "a", "k4", known);
  EXPECT_EQ(members.at("a").joins.size(), 4U);
}

TEST(MemberTable, ALeaseEndsAfterAnExpiryOfSilence) {
  MemberTable members = table();
  members.join(at(0), "a", "k");
  members.join(at(500), "b", "k");
  EXPECT_TRUE(members.silent(at(999)).empty());
  EXPECT_EQ(members.silent(at(1000)), std::vector<std::string>{"a"});
  members.hear(at(1000), "a");
  EXPECT_EQ(members.silent(at(1500)), std::vector<std::string>{"b"});
  members.remove("b");
  EXPECT_EQ(members.standing("b", 11), Standing::kUnknown);
}

TEST(MemberTable, ASilentPartyIsToldUntilItIsRemoved) {
  MemberTable members = table();
  members.join(at(0), "a", "k");
  EXPECT_EQ(members.silent(at(1000)), std::vector<std::string>{"a"});
  EXPECT_EQ(members.silent(at(1001)), std::vector<std::string>{"a"});
  members.remove("a");
  EXPECT_TRUE(members.silent(at(1002)).empty());
  members.restore("b", {3, at(500), {}});
  EXPECT_EQ(members.silent(at(1500)), std::vector<std::string>{"b"});
  members.hear(at(1600), "b");
  members.join(at(1601), "c", "k");
  EXPECT_TRUE(members.silent(at(2599)).empty());
  EXPECT_EQ(members.silent(at(2600)), std::vector<std::string>{"b"});
}

TEST(MemberTable, NumbersOfPartiesAndKeysAreBounded) {
  MemberTable members = table(2);
  members.join(at(0), "a", "k");
  members.join(at(0), "b", "k");
  EXPECT_EQ(members.classify("c", "k"), JoinKind::kTooMany);
  EXPECT_EQ(members.classify("a", "other"), JoinKind::kReplaces);
  for (std::size_t i = 0; i < MemberTable::kKeys + 5; ++i) {
    members.join(at(0), "a", "key" + std::to_string(i));
  }
  EXPECT_EQ(members.at("a").joins.size(), MemberTable::kKeys);
}

TEST(MemberTable, ARestoredPartyKeepsItsEpochAndItsJoins) {
  MemberTable members = table();
  members.restore("a", {7, at(5), {"k1", "k2"}});
  EXPECT_EQ(members.standing("a", 7), Standing::kMember);
  EXPECT_EQ(members.classify("a", "k1"), JoinKind::kOver);
  EXPECT_EQ(members.classify("a", "k2"), JoinKind::kRepeated);
  EXPECT_EQ(members.join(at(6), "a", "k3"), 10U);
}

TEST(MemberTable, NamesAreShortAndPlain) {
  EXPECT_TRUE(is_member_name("host-1.example:8000_x"));
  EXPECT_TRUE(is_member_name(std::string(kMaxMemberName, 'a')));
  for (const std::string& wrong :
       {std::string(), std::string("a/b"), std::string("a b"), std::string("a\n"),
        std::string("\xc3\xa4"), std::string(kMaxMemberName + 1, 'a')}) {
    EXPECT_FALSE(is_member_name(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace sluice
