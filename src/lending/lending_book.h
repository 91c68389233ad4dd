// LendingBook: which party lends memory to which. A pure state machine: a time and a message in, an
// answer out. The coordinator gives it messages of parties; tests give it any.
//
// Promises, also when parties die, repeat themselves or come late:
// - Never over-committed: the loans of a lease are never more than the lease.
// - Always returned: the loans of a party that is silent for `expiry` are the lender's again.
//   A party must therefore stop using loans before that: it counts from the sending of its last
//   message that was answered, the book from its arrival.
// - Fenced: each join has an epoch of its own; messages with another one change nothing.
// - After a start nothing is granted or returned for one `expiry`, while parties present what they
//   hold. A lender presents all that was not returned to it.
//
// Loans come back by consent. The book says how much of each loan its holder may keep:
// - less, when the lender wants its memory back (the largest loans shrink first);
// - less, when others lack memory: first what holders say they can spare; then, for a party that
//   holds less than its share, what others hold beyond theirs. A share is the device's memory
//   divided by the parties that are there.
//
// Owner: the coordinator. Threads: one. Time: a message costs about the loans of its device.
// Limits: kMaxParties, kMaxLeases; kKeys remembered requests for each party.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "lending/lending_message.h"

namespace sluice {

struct LendingOptions {
  Duration expiry = std::chrono::seconds(10);
  std::uint64_t first_epoch = 1;         // differs from those of earlier runs; 1 to 2^52
  std::vector<LeaseBytes> budgets = {};  // `lease`: the device; memory that the operator divides
};

struct PartyView {
  std::string party;
  std::string device;
  std::uint64_t epoch = 0;
  Duration silent_for{0};
  std::int64_t held = 0;
  std::int64_t want = 0;
  std::int64_t spare = 0;
};

struct DeviceLeaseView {
  LeaseView lease;
  std::string device;
  std::string lender;  // empty: the operator's budget, or a lender that is gone
};

struct DeviceLoanView {
  LoanView loan;
  std::string borrower;
};

struct LendingStatus {
  Duration no_grants_for{0};
  std::vector<PartyView> parties;
  std::vector<DeviceLeaseView> leases;
  std::vector<DeviceLoanView> loans;
  std::int64_t expired = 0;  // parties, since the start
};

class LendingBook {
 public:
  static constexpr std::size_t kMaxParties = 4096;
  static constexpr std::size_t kMaxLeases = 4096;
  static constexpr std::size_t kKeys = 32;

  LendingBook(LendingOptions options, TimePoint start);

  // REQUIRES: `now` never falls.
  LendAnswer handle(TimePoint now, const LendRequest& request);
  LendingStatus status(TimePoint now);
  // Forgets parties that are silent for too long. handle() and status() do so as well.
  void advance(TimePoint now);

  // CHECKs that no lease is over-committed and that all sums agree.
  void check_integrity() const;

 private:
  struct Loan {
    std::int64_t bytes = 0;
    std::int64_t keep = 0;
  };
  struct Remembered {
    LendRequest request;
    std::int64_t granted = 0;
    std::int64_t returned = 0;
  };
  struct Party {
    std::string device;
    std::uint64_t epoch = 0;
    TimePoint heard;
    std::int64_t want = 0;
    std::int64_t spare = 0;
    std::map<std::string, Loan> loans;  // by lease
    std::deque<Remembered> remembered;
    std::deque<std::string> joins;  // keys of its joins and of earlier processes of its name
  };
  struct Lease {
    std::string device;
    std::string lender;       // empty: the operator's budget, or the lender is gone
    std::int64_t bytes = 0;   // lent + free + (not yet returned)
    std::int64_t target = 0;  // as the lender wants it: less than `bytes` during a reclaim
    std::int64_t lent = 0;
    bool is_budget = false;
  };
  using Leases = std::map<std::string, Lease>;

  LendAnswer act(TimePoint now, Party& party, const LendRequest& request);
  LendAnswer join(TimePoint now, const LendRequest& request);
  LendAnswer lease(Party& party, const LendRequest& request);
  LendAnswer reclaim(Party& party, const LendRequest& request);
  LendAnswer allocate(TimePoint now, Party& party, const LendRequest& request);
  LendAnswer give_back(Party& party, const LendRequest& request);
  LendAnswer check_names(const LendRequest& request) const;

  void present(const std::string& name, Party& party, const LendRequest& request, bool known,
               const std::map<std::string, Loan>& before);
  void drop_party(const std::string& name);
  void drop_loans(Party& party);
  void take_back(Party& party, const std::string& lease, std::int64_t bytes);
  LendAnswer repeat(TimePoint now, const Party& party, const Remembered& old) const;
  void settle(Leases::iterator lease);
  void settle_all();
  std::int64_t free_for(const std::string& party, const std::string& device) const;
  std::int64_t share(const std::string& device) const;
  std::int64_t available_to(const std::string& name, const Party& party) const;
  void rebalance(const std::string& device);
  void recall_for_lenders(const std::string& device);
  void recall_for_demand(const std::string& device);
  bool grants(TimePoint now) const { return now - start_ >= options_.expiry; }
  LendReply view(TimePoint now, const std::string& name, const Party& party) const;

  LendingOptions options_;
  TimePoint start_;
  std::uint64_t next_epoch_;
  std::map<std::string, Party> parties_;
  Leases leases_;
  std::int64_t expired_ = 0;
  bool recovered_ = false;  // the first expiry is over
};

}  // namespace sluice
