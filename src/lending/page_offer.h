// PageOffer: a party's side of memory lending for a process that lends pages: it decides the next
// message to the coordinator and how much of its memory each borrower may use. Pure: the owner
// sends the messages, and tells it the time, the answers and what is backed.
//
// - A recall gives a borrower kGrace. Then the owner takes the memory, whatever the borrower does,
//   and the coordinator is told that it is revoked.
// - What the lender itself wants back it has after kGrace, whether or not the coordinator answers:
//   until then the largest grants shrink here, as they will in the coordinator's book.
// - Without an answer for half of the expiry no borrower may use anything: the coordinator may lend
//   nothing then either, and borrowers have dropped their loans.
// - A later process of the same name fences this one, which then lends nothing for good.
// One message is in flight at a time. A message without an answer is repeated with its key; a join
// is made anew, because what it presents may have changed.
// Owner: the server. Threads: one. Units: bytes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "lending/lending_message.h"
#include "lending/message_writer.h"

namespace sluice {

// A borrower of the lender may use `bytes`, and from `until` on only `keep`.
struct PageGrant {
  std::string party;
  std::int64_t bytes = 0;
  std::int64_t keep = 0;
  TimePoint until;  // meaningful if keep < bytes
  friend bool operator==(const PageGrant&, const PageGrant&) = default;
};

struct PageOfferOptions {
  std::string party;
  std::string device;
  std::string socket;
  std::string key_prefix;  // differs from that of every other process
};

class PageOffer {
 public:
  static constexpr Duration kHeartbeat = std::chrono::milliseconds(100);
  static constexpr Duration kRetry = std::chrono::milliseconds(200);
  static constexpr Duration kGrace = std::chrono::milliseconds(100);
  static constexpr const char* kLease = "pages";

  explicit PageOffer(PageOfferOptions options);

  // `target`: it wants to lend so much. `backed`: so much of its memory is lent now.
  void update(TimePoint now, std::int64_t target, std::int64_t backed);
  std::optional<LendRequest> next(TimePoint now);
  // REQUIRES: next() gave a message that has no answer yet. `now`: when the answer came.
  void answer(TimePoint now, const LendAnswer& answer);
  void failed(TimePoint now);

  std::vector<PageGrant> grants() const;
  bool joined() const { return joined_; }
  std::uint64_t revoked() const { return revoked_; }  // messages that told of it
  std::optional<LendRequest> leave() const { return messages_.leave(epoch_); }

 private:
  bool is_overdue(TimePoint now) const;
  std::int64_t kept() const;
  void cut();
  void take(TimePoint now, const LendReply& reply);

  const PageOfferOptions options_;
  MessageWriter messages_;
  bool joined_ = false;
  bool fenced_ = false;
  std::uint64_t epoch_ = 0;  // 0: not joined
  Duration expiry_{0};
  std::int64_t target_ = 0;
  std::int64_t backed_ = 0;
  std::int64_t booked_ = 0;  // the target that the coordinator has
  std::vector<LeaseHolder> holders_;
  std::map<std::string, TimePoint> recalls_;  // by party: when its grace ends
  TimePoint wanted_until_{};                  // grants fit the target from then on
  std::optional<LendRequest> in_flight_;
  bool repeat_ = false;
  TimePoint sent_;
  std::optional<TimePoint> answered_;
  TimePoint next_heartbeat_{};
  std::uint64_t revoked_ = 0;
};

}  // namespace sluice
