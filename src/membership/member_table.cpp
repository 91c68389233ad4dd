#include "membership/member_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace sluice {

bool is_member_name(std::string_view text) {
  if (text.empty() || text.size() > kMaxMemberName) return false;
  return std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.' || c == ':';
  });
}

MemberTable::MemberTable(Duration expiry, std::uint64_t first_epoch, std::size_t most)
    : expiry_(expiry), most_(most), next_epoch_(first_epoch) {
  CHECK(expiry.count() > 0 && first_epoch > 0);
}

JoinKind MemberTable::classify(const std::string& name, const std::string& key) const {
  const auto found = members_.find(name);
  if (found == members_.end()) return members_.size() < most_ ? JoinKind::kNew : JoinKind::kTooMany;
  const std::deque<std::string>& joins = found->second.joins;
  if (!joins.empty() && joins.back() == key) return JoinKind::kRepeated;
  return std::ranges::find(joins, key) == joins.end() ? JoinKind::kReplaces : JoinKind::kOver;
}

std::uint64_t MemberTable::join(TimePoint now, const std::string& name, const std::string& key,
                                std::span<const std::string> earlier) {
  Member& member = members_[name];
  member.epoch = next_epoch_++;
  member.heard = now;
  first_end_ = std::min(first_end_, now + expiry_);
  for (const std::string& one : earlier) {
    if (one == key || std::ranges::find(member.joins, one) != member.joins.end()) continue;
    member.joins.push_back(one);
  }
  member.joins.push_back(key);
  while (member.joins.size() > kKeys) member.joins.pop_front();
  return member.epoch;
}

void MemberTable::restore(const std::string& name, Member member) {
  first_end_ = std::min(first_end_, member.heard + expiry_);
  members_[name] = std::move(member);
}

Standing MemberTable::standing(const std::string& name, std::uint64_t epoch) const {
  const auto found = members_.find(name);
  if (found == members_.end()) return Standing::kUnknown;
  return found->second.epoch == epoch ? Standing::kMember : Standing::kStaleEpoch;
}

std::vector<std::string> MemberTable::silent(TimePoint now) {
  std::vector<std::string> names;
  if (now < first_end_) return names;
  first_end_ = TimePoint{Duration::max()};
  for (const auto& [name, member] : members_) {
    first_end_ = std::min(first_end_, member.heard + expiry_);
    if (now - member.heard >= expiry_) names.push_back(name);
  }
  return names;
}

}  // namespace sluice
