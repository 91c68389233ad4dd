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
// Loans come back by consent; those of pages also when their lender revokes them. The book says how
// much of each loan its holder may keep:
// - less, when the lender wants its memory back (the largest loans shrink first);
// - less, when others lack memory: first what holders say they can spare; then, for a party that
//   holds less than its share, what others hold beyond theirs. A share is the device's memory
//   divided by the parties that are there.
//
// Owner: the coordinator. Threads: one. Time: a message that changes something costs about the
// loans of its device, and so does the next one; any other costs about the loans of its party.
// Limits: kMaxParties, kMaxLeases; kKeys remembered requests for each party.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "lending/lending_message.h"
#include "membership/member_table.h"

namespace sluice {

struct LendingOptions {
  Duration expiry = std::chrono::seconds(10);
  std::uint64_t first_epoch = 1;         // differs from those of earlier runs; 1 to 2^62 + 1
  std::vector<LeaseBytes> budgets = {};  // `lease`: the device; memory that the operator divides
};

struct PartyView {
  std::string party;
  std::string device;  // a party of the kind "pages": "DEVICE/pages", as in the other views
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

// Records of the state that the book must not forget, one for each party and lease. Wants,
// heartbeats and recalls are not in them: parties say or answer them again.
struct RememberedRequest {
  std::string key;
  LendVerb verb = LendVerb::kHeartbeat;
  std::string lease;
  std::int64_t bytes = 0;
  std::int64_t granted = 0;
  std::int64_t returned = 0;
  friend bool operator==(const RememberedRequest&, const RememberedRequest&) = default;
};

struct PartyRecord {
  std::string party;
  std::string device;
  std::uint64_t epoch = 0;
  std::vector<LeaseBytes> loans;
  std::vector<std::string> joins;  // keys of its joins and of earlier processes of its name
  std::vector<RememberedRequest> remembered;
  std::string socket = {};
  friend bool operator==(const PartyRecord&, const PartyRecord&) = default;
};

struct LeaseRecord {
  std::string lease;
  std::string device;
  std::string lender;
  std::int64_t target = 0;
  friend bool operator==(const LeaseRecord&, const LeaseRecord&) = default;
};

struct LendingRecords {
  std::vector<PartyRecord> parties;
  std::vector<LeaseRecord> leases;
};

// Since the last call: records that are new or differ, and names of those that are gone.
struct LendingChanges {
  LendingRecords records;
  std::vector<std::string> gone_parties;
  std::vector<std::string> gone_leases;
};

class LendingBook {
 public:
  static constexpr std::size_t kMaxParties = 4096;
  static constexpr std::size_t kMaxLeases = 4096;
  static constexpr std::size_t kKeys = MemberTable::kKeys;

  LendingBook(LendingOptions options, TimePoint start);

  // The book of an earlier coordinator, from its records: parties have one more expiry from now on.
  // `settled`: it was, so nothing is unknown, and grants are made at once. Records that contradict
  // each other or `options` are made to fit: a loan of a lease that is gone is recalled.
  LendingBook(LendingOptions options, TimePoint start, const LendingRecords& records, bool settled);

  // REQUIRES: `now` never falls.
  LendAnswer handle(TimePoint now, const LendRequest& request);
  LendingStatus status(TimePoint now);
  // Forgets parties that are silent for too long. handle() and status() do so as well.
  void advance(TimePoint now);

  // The first expiry after a start is over, or was not needed.
  bool settled() const { return recovered_; }
  LendingChanges take_changes();

  // CHECKs that no lease is over-committed and that all sums agree.
  void check_integrity() const;

 private:
  struct Loan {
    std::int64_t bytes = 0;
    std::int64_t keep = 0;
  };
  struct Party {
    std::string device;  // with kPages: "DEVICE/pages"
    std::string socket;
    std::int64_t want = 0;
    std::int64_t spare = 0;
    std::map<std::string, Loan> loans;  // by lease
    std::deque<RememberedRequest> remembered;
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
  // Sums over the parties and leases of a device.
  struct Pool {
    std::int64_t free = 0;
    std::int64_t share = 0;     // of each party
    std::int64_t reserved = 0;  // what parties below their share want, up to it
    friend bool operator==(const Pool&, const Pool&) = default;
  };

  LendAnswer act(TimePoint now, Party& party, const LendRequest& request);
  LendAnswer join(TimePoint now, const LendRequest& request);
  LendAnswer lease(Party& party, const LendRequest& request);
  LendAnswer reclaim(Party& party, const LendRequest& request);
  LendAnswer revoke(const LendRequest& request);
  LendAnswer allocate(TimePoint now, Party& party, const LendRequest& request);
  LendAnswer give_back(Party& party, const LendRequest& request);
  LendAnswer check_names(const LendRequest& request) const;

  void present(const std::string& name, Party& party, const LendRequest& request, bool known,
               const std::map<std::string, Loan>& before);
  void drop_party(const std::string& name);
  void drop_loans(Party& party);
  void take_back(Party& party, const std::string& lease, std::int64_t bytes);
  LendAnswer repeat(TimePoint now, const Party& party, const std::string& name,
                    const RememberedRequest& old) const;
  void settle(Leases::iterator lease);
  void settle_all();
  const Pool& pool_of(const std::string& device) const;
  Pool add_up(const std::string& device) const;
  // A party's leases are neighbours, because their names begin with its name.
  Leases::const_iterator first_lease_of(const std::string& party) const;
  static bool is_lease_of(const std::string& lease, const std::string& party);
  std::int64_t available_to(const std::string& name, const Party& party) const;
  void rebalance(const std::string& device);
  void recall_for_lenders(const std::string& device);
  void recall_for_demand(const std::string& device);
  bool grants(TimePoint now) const { return recovered_ || now - start_ >= options_.expiry; }
  LendReply view(TimePoint now, const std::string& name, const Party& party) const;

  LendingOptions options_;
  TimePoint start_;
  MemberTable members_;  // the same names as parties_
  std::map<std::string, Party> parties_;
  Leases leases_;
  std::int64_t expired_ = 0;
  bool recovered_ = false;                     // the first expiry is over
  mutable std::map<std::string, Pool> pools_;  // by device; without those that have changed
  std::set<std::string> changed_parties_;
  std::set<std::string> changed_leases_;
};

}  // namespace sluice
