// The status of a LendingBook, and the check of its sums.
#include "base/check.h"
#include "lending/lending_book.h"

namespace sluice {

LendingStatus LendingBook::status(TimePoint now) {
  advance(now);
  LendingStatus status;
  status.expired = expired_;
  if (!grants(now)) status.no_grants_for = start_ + options_.expiry - now;
  for (const auto& [name, party] : parties_) {
    const Member& member = members_.at(name);
    PartyView view{name, party.device, member.epoch, now - member.heard,
                   0,    party.want,   party.spare};
    for (const auto& [lease, loan] : party.loans) {
      view.held += loan.bytes;
      status.loans.push_back({{lease, leases_.at(lease).lender, loan.bytes, loan.keep}, name});
    }
    status.parties.push_back(std::move(view));
  }
  for (const auto& [name, lease] : leases_) {
    status.leases.push_back(
        {{name, lease.bytes, lease.bytes - lease.target, lease.lent}, lease.device, lease.lender});
  }
  return status;
}

void LendingBook::check_integrity() const {
  std::map<std::string, std::int64_t> lent;
  for (const auto& [name, party] : parties_) {
    for (const auto& [lease, loan] : party.loans) {
      CHECK(loan.bytes > 0 && loan.keep >= 0 && loan.keep <= loan.bytes);
      CHECK(leases_.contains(lease) && leases_.at(lease).device == party.device);
      lent[lease] += loan.bytes;
    }
  }
  for (const auto& [name, lease] : leases_) {
    CHECK(lease.lent == lent[name]);
    CHECK(lease.lent <= lease.bytes);
    CHECK(lease.target >= 0 && lease.target <= lease.bytes);
    CHECK(lease.lender.empty() || parties_.contains(lease.lender));
  }
  CHECK(members_.size() == parties_.size());
  for (const auto& [device, pool] : pools_) CHECK(pool == add_up(device));
}

}  // namespace sluice
