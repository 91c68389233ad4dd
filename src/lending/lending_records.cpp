// The records of a LendingBook: taken from it, and made into one.
#include <algorithm>
#include <utility>

#include "lending/lending_book.h"

namespace sluice {

LendingBook::LendingBook(LendingOptions options, TimePoint start, const LendingRecords& records,
                         bool settled)
    : LendingBook(std::move(options), start) {
  for (const PartyRecord& record : records.parties) {
    if (parties_.size() >= kMaxParties) break;
    Party& party = parties_[record.party];
    party.device = record.device;
    party.socket = record.socket;
    members_.restore(record.party,
                     {record.epoch, start, {record.joins.begin(), record.joins.end()}});
    party.remembered.assign(record.remembered.begin(), record.remembered.end());
  }
  for (const LeaseRecord& record : records.leases) {
    Lease& lease = leases_[record.lease];
    if (lease.is_budget) continue;  // the options say what it is today
    lease.device = record.device;
    // The record of a lender that is gone is removed before those of its leases are written.
    const auto lender = parties_.find(record.lender);
    if (lender == parties_.end() || lender->second.device != record.device) continue;
    lease.lender = record.lender;
    lease.target = record.target;
  }
  for (const PartyRecord& record : records.parties) {
    const auto party = parties_.find(record.party);
    if (party == parties_.end()) continue;
    for (const LeaseBytes& loan : record.loans) {
      Lease& lease = leases_[loan.lease];
      if (lease.device.empty()) lease.device = record.device;
      if (lease.device != record.device || party->second.loans.contains(loan.lease)) continue;
      party->second.loans[loan.lease] = {loan.bytes, loan.bytes};
      lease.lent += loan.bytes;
    }
  }
  for (auto& [name, lease] : leases_) lease.bytes = std::max(lease.target, lease.lent);
  std::set<std::string> devices;
  for (const auto& [name, lease] : leases_) devices.insert(lease.device);
  recovered_ = settled;
  if (settled) settle_all();
  for (const std::string& device : devices) rebalance(device);
}

LendingChanges LendingBook::take_changes() {
  LendingChanges changes;
  for (const std::string& name : std::exchange(changed_parties_, {})) {
    const auto found = parties_.find(name);
    if (found == parties_.end()) {
      changes.gone_parties.push_back(name);
      continue;
    }
    const Party& party = found->second;
    const Member& member = members_.at(name);
    PartyRecord record{name, party.device, member.epoch, {}, {}, {}, party.socket};
    for (const auto& [lease, loan] : party.loans) record.loans.push_back({lease, loan.bytes});
    record.joins.assign(member.joins.begin(), member.joins.end());
    record.remembered.assign(party.remembered.begin(), party.remembered.end());
    changes.records.parties.push_back(std::move(record));
  }
  for (const std::string& name : std::exchange(changed_leases_, {})) {
    const auto found = leases_.find(name);
    if (found == leases_.end()) {
      changes.gone_leases.push_back(name);
    } else if (!found->second.is_budget) {
      const Lease& lease = found->second;
      changes.records.leases.push_back({name, lease.device, lease.lender, lease.target});
    }
  }
  return changes;
}

}  // namespace sluice
