// MemberTable: which parties have joined, each with a lease and an epoch. Lending memory and the
// gateway's agents share it.
//
// - A lease ends when the party was silent for `expiry`. The table counts from the arrival of a
//   message. A party must count from the sending of its last message that was answered, so that it
//   stops before the table forgets it.
// - Each join has an epoch of its own, which grows. Messages with another one change nothing: a
//   later process of the same name fences an earlier one.
// - A join that is repeated with the key of the last one has the same epoch, because its answer may
//   have been lost. Earlier joins are refused, because they arrive late. A join names those that
//   its process sent before it: the table may not have heard of them, or has forgotten them.
//
// Owner: a book of one kind of party. Threads: one. Limits: `most` parties; kKeys join keys each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace sluice {

inline constexpr std::size_t kMaxMemberName = 64;

// 1 to kMaxMemberName letters, digits, '-', '_', '.' or ':': names are parts of paths and lines.
bool is_member_name(std::string_view text);
inline constexpr const char* kMemberNameRule = "1 to 64 letters, digits, '-', '_', '.' or ':'";

struct Member {
  std::uint64_t epoch = 0;
  TimePoint heard;
  std::deque<std::string> joins;  // keys of its joins and of earlier processes of its name
};

enum class JoinKind : std::uint8_t {
  kNew,       // no party of this name is known
  kReplaces,  // an earlier process of this name is known
  kRepeated,  // the last join again
  kOver,      // an earlier join again: another process has joined by this name since
  kTooMany,   // parties
};

enum class Standing : std::uint8_t { kMember, kUnknown, kStaleEpoch };

class MemberTable {
 public:
  static constexpr std::size_t kKeys = 32;

  // `first_epoch`: larger than those of earlier runs, or different with near certainty.
  // REQUIRES: expiry > 0; first_epoch > 0.
  MemberTable(Duration expiry, std::uint64_t first_epoch, std::size_t most);

  Duration expiry() const { return expiry_; }
  std::size_t size() const { return members_.size(); }

  // Says how a join would end; changes nothing.
  JoinKind classify(const std::string& name, const std::string& key) const;
  // Joins a party and returns its new epoch. `earlier`: keys of joins that this process has sent
  // before. REQUIRES: classify() says kNew or kReplaces.
  std::uint64_t join(TimePoint now, const std::string& name, const std::string& key,
                     std::span<const std::string> earlier = {});
  // Adds a party as an earlier table had it.
  void restore(const std::string& name, Member member);
  void remove(const std::string& name) { members_.erase(name); }

  Standing standing(const std::string& name, std::uint64_t epoch) const;
  // REQUIRES for both: it is known.
  void hear(TimePoint now, const std::string& name) { members_.at(name).heard = now; }
  const Member& at(const std::string& name) const { return members_.at(name); }

  // Parties whose lease is over. Looks at all of them only when one may be.
  std::vector<std::string> silent(TimePoint now);

 private:
  Duration expiry_;
  std::size_t most_;
  std::uint64_t next_epoch_;
  std::map<std::string, Member> members_;
  TimePoint first_end_{Duration::max()};  // no lease is over before
};

}  // namespace sluice
