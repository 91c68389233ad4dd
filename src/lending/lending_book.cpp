#include "lending/lending_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "base/check.h"
#include "membership/join_keys.h"

namespace sluice {
namespace {

LendAnswer fault(LendFault kind, std::string message) {
  LendAnswer answer;
  answer.fault = kind;
  answer.message = std::move(message);
  return answer;
}

// Names are parts of lease names, too.
bool is_name(std::string_view text) { return is_member_name(text); }

bool is_lease_name(std::string_view text) {
  const std::size_t slash = text.find('/');
  return slash != std::string_view::npos && is_name(text.substr(0, slash)) &&
         is_name(text.substr(slash + 1));
}

bool is_amount(std::int64_t bytes, std::int64_t least) {
  return bytes >= least && bytes <= kMaxLeaseBytes;
}

constexpr const char* kNameRule = kMemberNameRule;

bool changes_something(LendVerb verb) {
  return verb != LendVerb::kHeartbeat && verb != LendVerb::kLeave;
}

// Parties of one device that lend pages have a pool of their own. No name has a slash.
constexpr std::string_view kPagesPool = "/pages";
bool is_pages(std::string_view pool) { return pool.ends_with(kPagesPool); }

LendAnswer wrong_amount(const char* field, std::int64_t least, std::int64_t given) {
  return fault(LendFault::kBadRequest, fmt::format("{} must be from {} to {} bytes, not {}", field,
                                                   least, kMaxLeaseBytes, given));
}

}  // namespace

LendingBook::LendingBook(LendingOptions options, TimePoint start)
    : options_(std::move(options)),
      start_(start),
      members_(options_.expiry, options_.first_epoch, kMaxParties) {
  for (const LeaseBytes& budget : options_.budgets) {
    CHECK(is_name(budget.lease) && is_amount(budget.bytes, 1));
    Lease lease;
    lease.device = budget.lease;
    lease.bytes = lease.target = budget.bytes;
    lease.is_budget = true;
    leases_.emplace("budget/" + budget.lease, std::move(lease));
  }
}

void LendingBook::advance(TimePoint now) {
  for (const std::string& name : members_.silent(now)) {
    ++expired_;
    drop_party(name);
  }
  if (recovered_ || !grants(now)) return;
  recovered_ = true;
  settle_all();
  // Leases that holders presented and whose lenders have not come back are recalled from now on.
  std::set<std::string> devices;
  for (const auto& [name, lease] : leases_) devices.insert(lease.device);
  for (const std::string& device : devices) rebalance(device);
}

// A party's loans are free again. Its leases have no lender: their holders give them back.
void LendingBook::drop_party(const std::string& name) {
  const auto found = parties_.find(name);
  CHECK(found != parties_.end());
  const std::string device = found->second.device;
  drop_loans(found->second);
  parties_.erase(found);
  members_.remove(name);
  changed_parties_.insert(name);
  for (auto& [lease_name, lease] : leases_) {
    if (lease.lender != name) continue;
    changed_leases_.insert(lease_name);
    lease.lender.clear();
    lease.target = 0;
  }
  settle_all();
  pools_.clear();
  rebalance(device);
}

void LendingBook::drop_loans(Party& party) {
  for (const auto& [lease, loan] : party.loans) leases_.at(lease).lent -= loan.bytes;
  party.loans.clear();
}

void LendingBook::take_back(Party& party, const std::string& lease, std::int64_t bytes) {
  const auto loan = party.loans.find(lease);
  CHECK(loan != party.loans.end() && loan->second.bytes >= bytes);
  loan->second.bytes -= bytes;
  leases_.at(lease).lent -= bytes;
  if (loan->second.bytes == 0) party.loans.erase(loan);
}

// Returns free bytes that the lender wants back, and forgets a lease that has none left. After a
// start nothing is returned yet: a holder may still come with its loan.
void LendingBook::settle(Leases::iterator lease) {
  Lease& l = lease->second;
  l.bytes = std::max({l.target, l.lent, recovered_ ? 0 : l.bytes});
  if (l.bytes != 0 || l.is_budget) return;
  changed_leases_.insert(lease->first);
  leases_.erase(lease);
}

void LendingBook::settle_all() {
  for (auto lease = leases_.begin(); lease != leases_.end();) settle(lease++);
}

LendReply LendingBook::view(TimePoint now, const std::string& name, const Party& party) const {
  LendReply reply;
  reply.epoch = members_.at(name).epoch;
  reply.expiry = options_.expiry;
  if (!grants(now)) reply.no_grants_for = start_ + options_.expiry - now;
  if (grants(now)) reply.available = std::min(party.want, available_to(name, party));
  for (const auto& [lease, loan] : party.loans) {
    const std::string& lender = leases_.at(lease).lender;
    const auto found = parties_.find(lender);
    reply.loans.push_back({lease, lender, loan.bytes, loan.keep,
                           found == parties_.end() ? std::string() : found->second.socket});
  }
  for (auto at = first_lease_of(name); at != leases_.end(); ++at) {
    const auto& [lease, l] = *at;
    if (!is_lease_of(lease, name)) break;
    if (l.lender != name) continue;
    reply.leases.push_back({lease, l.bytes, l.bytes - l.target, l.lent});
    if (!is_pages(l.device)) continue;
    for (const auto& [holder, other] : parties_) {
      const auto loan = other.loans.find(lease);
      if (loan == other.loans.end()) continue;
      reply.leases.back().holders.push_back({holder, loan->second.bytes, loan->second.keep});
    }
  }
  return reply;
}

LendAnswer LendingBook::check_names(const LendRequest& request) const {
  if (!is_name(request.party) || request.party == "budget") {
    return fault(LendFault::kBadRequest,
                 fmt::format("party must be {}, and not 'budget'", kNameRule));
  }
  if (changes_something(request.verb) && !is_name(request.key)) {
    return fault(LendFault::kBadRequest,
                 fmt::format("key must be {}; a new one for each new request", kNameRule));
  }
  if (request.verb == LendVerb::kJoin && !is_name(request.device)) {
    return fault(LendFault::kBadRequest, fmt::format("device must be {}", kNameRule));
  }
  if (!request.socket.empty() && (request.kind != LendKind::kPages || !is_name(request.socket))) {
    return fault(LendFault::kBadRequest,
                 fmt::format("socket is for the kind 'pages', and must be {}", kNameRule));
  }
  for (const LeaseBytes& held : request.held) {
    if (!is_lease_name(held.lease)) {
      return fault(LendFault::kBadRequest, "held: lease must be PARTY/NAME, as loans name it");
    }
    if (!is_amount(held.bytes, 1)) return wrong_amount("held: bytes", 1, held.bytes);
  }
  for (const LeaseBytes& lease : request.leases) {
    if (!is_name(lease.lease)) {
      return fault(LendFault::kBadRequest, fmt::format("leases: lease must be {}", kNameRule));
    }
    if (!is_amount(lease.bytes, 1)) return wrong_amount("leases: bytes", 1, lease.bytes);
  }
  if (request.earlier_joins.size() > kMaxEarlierJoins ||
      !std::ranges::all_of(request.earlier_joins, is_name)) {
    return fault(
        LendFault::kBadRequest,
        fmt::format("earlier_joins must be at most {} keys, each {}", kMaxEarlierJoins, kNameRule));
  }
  return {};
}

LendAnswer LendingBook::handle(TimePoint now, const LendRequest& request) {
  advance(now);
  if (auto checked = check_names(request); checked.fault != LendFault::kNone) return checked;
  if (request.verb == LendVerb::kJoin) {
    LendRequest pooled = request;
    if (request.kind == LendKind::kPages) pooled.device += kPagesPool;
    return join(now, pooled);
  }
  const Standing standing = members_.standing(request.party, request.epoch);
  if (standing == Standing::kUnknown) {
    return fault(LendFault::kUnknownParty,
                 fmt::format("party '{}' has not joined, has left, or was silent for too long; "
                             "join, and use no loan from before",
                             request.party));
  }
  if (standing == Standing::kStaleEpoch) {
    return fault(LendFault::kStaleEpoch,
                 fmt::format("the epoch of party '{}' is {}, not {}; if another process has joined "
                             "by that name, stop",
                             request.party, members_.at(request.party).epoch, request.epoch));
  }
  Party& party = parties_.at(request.party);
  members_.hear(now, request.party);
  if (request.verb == LendVerb::kLeave) {
    LendAnswer answer;
    answer.reply = view(now, request.party, party);
    answer.reply.loans.clear();
    answer.reply.leases.clear();
    drop_party(request.party);
    return answer;
  }
  if (changes_something(request.verb)) {
    for (const RememberedRequest& old : party.remembered) {
      if (old.key != request.key) continue;
      if (old.verb == request.verb && old.lease == request.lease && old.bytes == request.bytes) {
        return repeat(now, party, request.party, old);
      }
      return fault(
          LendFault::kKeyReused,
          fmt::format("key '{}' was used for another request; use a new one", request.key));
    }
  }
  LendAnswer answer = act(now, party, request);
  if (!changes_something(request.verb) || answer.fault != LendFault::kNone) return answer;
  changed_parties_.insert(request.party);
  party.remembered.push_back({request.key, request.verb, request.lease, request.bytes,
                              answer.reply.granted, answer.reply.returned});
  if (party.remembered.size() > kKeys) party.remembered.pop_front();
  return answer;
}

// The amounts are those of the first time; the state is today's, which may be a later one.
LendAnswer LendingBook::repeat(TimePoint now, const Party& party, const std::string& name,
                               const RememberedRequest& old) const {
  LendAnswer answer;
  answer.reply = view(now, name, party);
  answer.reply.granted = old.granted;
  answer.reply.returned = old.returned;
  return answer;
}

LendAnswer LendingBook::act(TimePoint now, Party& party, const LendRequest& request) {
  LendAnswer answer;
  bool changed = true;
  switch (request.verb) {
    case LendVerb::kHeartbeat:
      if (!is_amount(request.want, 0)) return wrong_amount("want", 0, request.want);
      if (!is_amount(request.spare, 0)) return wrong_amount("spare", 0, request.spare);
      changed = party.want != request.want || party.spare != request.spare;
      party.want = request.want;
      party.spare = request.spare;
      break;
    case LendVerb::kLease: answer = lease(party, request); break;
    case LendVerb::kReclaim:
    case LendVerb::kUnlease: answer = reclaim(party, request); break;
    case LendVerb::kRevoke: answer = revoke(request); break;
    case LendVerb::kAllocate: answer = allocate(now, party, request); break;
    case LendVerb::kFree:
    case LendVerb::kRespond: answer = give_back(party, request); break;
    case LendVerb::kJoin:
    case LendVerb::kLeave: CHECK(!"handled by the caller");
  }
  if (answer.fault != LendFault::kNone) return answer;
  if (changed) rebalance(party.device);
  LendReply reply = view(now, request.party, party);
  reply.granted = answer.reply.granted;
  reply.returned = answer.reply.returned;
  answer.reply = std::move(reply);
  return answer;
}

LendAnswer LendingBook::join(TimePoint now, const LendRequest& request) {
  const auto found = parties_.find(request.party);
  const bool known = found != parties_.end();
  const JoinKind kind = members_.classify(request.party, request.key);
  if (kind == JoinKind::kTooMany) {
    return fault(LendFault::kTooMany,
                 fmt::format("{} parties have joined, the limit", kMaxParties));
  }
  if (leases_.size() + request.leases.size() + request.held.size() > kMaxLeases) {
    return fault(LendFault::kTooMany,
                 fmt::format("there are {} leases, of {} at most", leases_.size(), kMaxLeases));
  }
  for (const LeaseBytes& lease : request.leases) {
    const auto same = leases_.find(request.party + "/" + lease.lease);
    if (same == leases_.end() || same->second.device == request.device) continue;
    return fault(LendFault::kBadRequest,
                 fmt::format("lease '{}' is still being returned on device '{}'; use another name",
                             same->first, same->second.device));
  }
  if (kind == JoinKind::kRepeated) {  // its answer was lost
    if (found->second.device != request.device || found->second.socket != request.socket) {
      return fault(LendFault::kKeyReused,
                   fmt::format("key '{}' was used for another join; use a new one", request.key));
    }
    members_.hear(now, request.party);
    LendAnswer answer;
    answer.reply = view(now, request.party, found->second);
    return answer;
  }
  if (kind == JoinKind::kOver) {
    return fault(LendFault::kStaleEpoch, fmt::format("the join with key '{}' of party '{}' is over",
                                                     request.key, request.party));
  }
  // The process before it is fenced. Its loans are those that the new one presents, at most.
  std::map<std::string, Loan> before;
  std::string old_device = request.device;
  if (known) {
    old_device = found->second.device;
    if (old_device == request.device) before = found->second.loans;
    drop_loans(found->second);
    parties_.erase(found);
  }
  Party& party = parties_[request.party];
  party.device = request.device;
  party.socket = request.socket;
  members_.join(now, request.party, request.key, request.earlier_joins);
  changed_parties_.insert(request.party);
  present(request.party, party, request, known, before);
  settle_all();
  pools_.clear();
  rebalance(party.device);
  // Holders of leases that the party left behind hear of the recall with their next message.
  if (old_device != party.device) rebalance(old_device);
  LendAnswer answer;
  answer.reply = view(now, request.party, party);
  return answer;
}

// Takes over what a process presents. During the first expiry a holder's word is enough, since the
// book has forgotten; later only what the book has from the process before.
void LendingBook::present(const std::string& name, Party& party, const LendRequest& request,
                          bool known, const std::map<std::string, Loan>& before) {
  std::map<std::string, std::int64_t> offered;
  for (const LeaseBytes& lease : request.leases) offered[name + "/" + lease.lease] = lease.bytes;
  for (auto& [lease_name, lease] : leases_) {
    if (lease.lender == name && !offered.contains(lease_name)) {
      lease.lender.clear();
      lease.target = 0;
      changed_leases_.insert(lease_name);
    }
  }
  for (const auto& [lease_name, bytes] : offered) {
    changed_leases_.insert(lease_name);
    Lease& lease = leases_[lease_name];
    lease.device = party.device;
    lease.lender = name;
    lease.target = bytes;
    lease.bytes = std::max({bytes, lease.lent, recovered_ ? 0 : lease.bytes});
  }
  for (const LeaseBytes& held : request.held) {
    std::int64_t bytes = held.bytes;
    if (recovered_ || known) {
      const auto had = before.find(held.lease);
      bytes = had == before.end() ? 0 : std::min(bytes, had->second.bytes);
    }
    const auto present_lease = leases_.find(held.lease);
    const bool foreign =
        present_lease != leases_.end() && present_lease->second.device != party.device;
    if (present_lease != leases_.end()) {
      // The parties of a lease cannot hold more than a lease may have.
      bytes = std::min(bytes, kMaxLeaseBytes - present_lease->second.lent);
    }
    if (bytes <= 0 || foreign || (recovered_ && present_lease == leases_.end())) continue;
    changed_leases_.insert(held.lease);
    Lease& lease = leases_[held.lease];
    lease.device = party.device;
    Loan& loan = party.loans[held.lease];
    if (loan.bytes >= bytes) continue;  // named twice
    lease.lent += bytes - loan.bytes;
    loan.bytes = loan.keep = bytes;
    lease.bytes = std::max(lease.bytes, lease.lent);
  }
}

LendAnswer LendingBook::lease(Party& party, const LendRequest& request) {
  if (!is_name(request.lease)) {
    return fault(LendFault::kBadRequest, fmt::format("lease must be {}", kNameRule));
  }
  if (!is_amount(request.bytes, 1)) return wrong_amount("bytes", 1, request.bytes);
  const std::string name = request.party + "/" + request.lease;
  const auto found = leases_.find(name);
  if (found == leases_.end() && leases_.size() >= kMaxLeases) {
    return fault(LendFault::kTooMany, fmt::format("there are {} leases, the limit", kMaxLeases));
  }
  if (found != leases_.end() && found->second.lender == request.party &&
      request.bytes < found->second.target) {
    return fault(LendFault::kBadRequest,
                 fmt::format("lease '{}' has {} bytes already; use reclaim to lower it", name,
                             found->second.target));
  }
  if (found != leases_.end() && found->second.device != party.device) {
    return fault(LendFault::kBadRequest,
                 fmt::format("lease '{}' is still being returned on device '{}'; use another name",
                             name, found->second.device));
  }
  changed_leases_.insert(name);
  Lease& lease = leases_[name];
  lease.device = party.device;
  lease.lender = request.party;
  lease.target = request.bytes;
  lease.bytes = std::max(request.bytes, lease.lent);
  return {};
}

LendAnswer LendingBook::reclaim(Party&, const LendRequest& request) {
  const std::string name = request.party + "/" + request.lease;
  const auto found = leases_.find(name);
  if (found == leases_.end() || found->second.lender != request.party) {
    return fault(LendFault::kUnknownLease, fmt::format("there is no lease '{}'", name));
  }
  Lease& lease = found->second;
  const std::int64_t bytes = request.verb == LendVerb::kUnlease ? lease.target : request.bytes;
  if (request.verb == LendVerb::kReclaim && !is_amount(bytes, 1)) {
    return wrong_amount("bytes", 1, bytes);
  }
  if (bytes > lease.target) {
    return fault(LendFault::kBadRequest,
                 fmt::format("bytes is {}, lease '{}' has {} left", bytes, name, lease.target));
  }
  const std::int64_t before = lease.bytes;
  changed_leases_.insert(name);
  lease.target -= bytes;
  LendAnswer answer;
  settle(found);
  const auto left = leases_.find(name);
  answer.reply.returned = before - (left == leases_.end() ? 0 : left->second.bytes);
  return answer;
}

// The lender has the memory already: what holders were to give back is theirs no more.
LendAnswer LendingBook::revoke(const LendRequest& request) {
  const std::string name = request.party + "/" + request.lease;
  const auto found = leases_.find(name);
  if (found == leases_.end() || found->second.lender != request.party) {
    return fault(LendFault::kUnknownLease, fmt::format("there is no lease '{}'", name));
  }
  if (!is_pages(found->second.device)) {
    return fault(LendFault::kBadRequest,
                 fmt::format("lease '{}' is not of the kind 'pages': its loans go back by consent; "
                             "use reclaim",
                             name));
  }
  const std::int64_t before = found->second.bytes;
  for (auto& [holder, other] : parties_) {
    const auto loan = other.loans.find(name);
    if (loan == other.loans.end() || loan->second.keep == loan->second.bytes) continue;
    changed_parties_.insert(holder);
    take_back(other, name, loan->second.bytes - loan->second.keep);
  }
  settle(found);
  const auto left = leases_.find(name);
  LendAnswer answer;
  answer.reply.returned = before - (left == leases_.end() ? 0 : left->second.bytes);
  return answer;
}

LendAnswer LendingBook::allocate(TimePoint now, Party& party, const LendRequest& request) {
  if (!is_amount(request.bytes, 1)) return wrong_amount("bytes", 1, request.bytes);
  LendAnswer answer;
  if (!grants(now)) return answer;
  const std::int64_t granted = std::min(request.bytes, available_to(request.party, party));
  std::int64_t left = granted;
  for (auto& [name, lease] : leases_) {
    if (lease.device != party.device || lease.lender == request.party) continue;
    const std::int64_t bytes = std::min(left, std::max<std::int64_t>(lease.target - lease.lent, 0));
    if (bytes == 0) continue;
    lease.lent += bytes;
    party.loans[name].bytes += bytes;
    left -= bytes;
  }
  CHECK(left == 0);
  answer.reply.granted = granted;
  // The rest stays wanted, so that others are asked for it.
  party.want = request.bytes - granted;
  party.spare = 0;
  return answer;
}

LendAnswer LendingBook::give_back(Party& party, const LendRequest& request) {
  const auto loan = party.loans.find(request.lease);
  if (loan == party.loans.end()) {
    return fault(LendFault::kUnknownLease, fmt::format("party '{}' holds nothing of a lease '{}'",
                                                       request.party, request.lease));
  }
  if (!is_amount(request.bytes, 1)) return wrong_amount("bytes", 1, request.bytes);
  if (request.bytes > loan->second.bytes) {
    return fault(LendFault::kBadRequest,
                 fmt::format("bytes is {}, the party holds {} of lease '{}'", request.bytes,
                             loan->second.bytes, request.lease));
  }
  take_back(party, request.lease, request.bytes);
  settle(leases_.find(request.lease));
  return {};
}

}  // namespace sluice
