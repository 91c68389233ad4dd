// The messages of memory lending, as plain data: a party asks, the coordinator answers. One struct
// each, because every answer shows the party's whole state: a party that lost an answer, or many,
// needs only the next one. docs/elastic-memory.md describes every field as JSON.
//
// A party is one process on one device, for one kind of memory. A lease is an amount of memory of
// that device that a lender offers; its name is "PARTY/NAME", or "budget/DEVICE" for memory that
// the operator divides. A loan is the bytes of one lease that one party holds.
// - kBudget: the permission to take so many bytes from the system. It goes back by consent only.
// - kPages: memory of the lender itself, which borrowers reach through the lender's socket. The
//   lender can revoke it.
// Values: plain; any thread. Units: bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace sluice {

inline constexpr std::int64_t kMaxLeaseBytes = std::int64_t{1} << 50;

enum class LendKind : std::uint8_t { kBudget, kPages };

enum class LendVerb : std::uint8_t {
  kJoin,       // a process begins, or presents what it holds
  kHeartbeat,  // it lives; says what it wants and what it can spare
  kLease,      // offers memory, or raises what it offers
  kReclaim,    // wants a part of its lease back
  kUnlease,    // wants all of it back
  kRevoke,     // has taken back what it wants of a lease of pages, without consent
  kAllocate,   // borrows
  kFree,       // gives back by its own choice
  kRespond,    // gives back as it was asked to
  kLeave,      // ends in order
};

struct LeaseBytes {
  std::string lease;
  std::int64_t bytes = 0;
  friend bool operator==(const LeaseBytes&, const LeaseBytes&) = default;
};

struct LendRequest {
  LendVerb verb = LendVerb::kHeartbeat;
  std::string party = {};
  std::uint64_t epoch = 0;  // all but kJoin: as the join's answer said
  std::string key = {};  // all but kHeartbeat, kLeave: a repeat with the same key changes nothing
  std::string device = {};            // kJoin
  LendKind kind = LendKind::kBudget;  // kJoin
  std::string socket = {};            // kJoin of a lender of pages: where it lends (lent_pages/)
  std::string lease = {};  // kLease, kReclaim, kUnlease, kRevoke: NAME; others: PARTY/NAME
  std::int64_t bytes = 0;  // kLease, kReclaim, kAllocate, kFree, kRespond
  std::int64_t want = 0;   // kHeartbeat: it lacks so many
  std::int64_t spare = 0;  // kHeartbeat: so many of those it holds it can do without
  std::vector<LeaseBytes> held = {};    // kJoin: loans from before
  std::vector<LeaseBytes> leases = {};  // kJoin: what it offers, by NAME
  // kJoin: keys of joins that this process has sent before, kMaxEarlierJoins at most. They are
  // refused if they arrive later; otherwise a late one would fence the process that sent it.
  std::vector<std::string> earlier_joins = {};
  friend bool operator==(const LendRequest&, const LendRequest&) = default;
};

struct LoanView {
  std::string lease;
  std::string lender;  // a party; empty: the operator's budget, or a lender that is gone
  std::int64_t bytes = 0;
  std::int64_t keep = 0;    // give back the rest
  std::string socket = {};  // of the lender, for pages
  friend bool operator==(const LoanView&, const LoanView&) = default;
};

struct LeaseHolder {
  std::string party;
  std::int64_t bytes = 0;
  std::int64_t keep = 0;
  friend bool operator==(const LeaseHolder&, const LeaseHolder&) = default;
};

struct LeaseView {
  std::string lease;
  std::int64_t bytes = 0;  // offered, with those that the lender wants back and does not have yet
  std::int64_t wanted_back = 0;
  std::int64_t lent = 0;
  std::vector<LeaseHolder> holders = {};  // of a lease of pages
};

struct LendReply {
  std::uint64_t epoch = 0;
  Duration expiry{0};           // without a message for so long, the coordinator forgets the party
  Duration no_grants_for{0};    // after its start; 0: grants are made
  std::int64_t granted = 0;     // kAllocate
  std::int64_t returned = 0;    // kReclaim, kUnlease, kRevoke: at once; the rest follows
  std::int64_t available = 0;   // an allocate would get so many now, at most `want` of them
  std::vector<LoanView> loans;  // of the party
  std::vector<LeaseView> leases;
};

enum class LendFault : std::uint8_t {
  kNone,
  kBadRequest,    // a field is wrong
  kUnknownParty,  // it never joined, left, or was silent for too long: it must join
  kStaleEpoch,    // a later process has its name: it must stop, or join
  kUnknownLease,
  kKeyReused,   // for another request
  kTooMany,     // parties or leases
  kNotLeading,  // this coordinator cannot answer now; the request may or may not have had its
                // effect
};

// "budget", "pages"; stable, for JSON.
std::string_view lend_kind_name(LendKind kind);

// "stale_epoch" and so on; stable, for JSON.
std::string_view lend_fault_name(LendFault fault);
int lend_fault_status(LendFault fault);    // of HTTP
std::span<const LendFault> lend_faults();  // all but kNone

struct LendAnswer {
  LendFault fault = LendFault::kNone;
  std::string message;  // of the fault: names the field and says what is expected
  LendReply reply;      // without a fault
};

}  // namespace sluice
