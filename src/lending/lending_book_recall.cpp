// How much of each loan its holder may keep.
#include <algorithm>
#include <functional>
#include <vector>

#include "lending/lending_book.h"

namespace sluice {

// Decides anew how much of each loan its holder may keep.
void LendingBook::rebalance(const std::string& device) {
  pools_.erase(device);
  for (auto& [name, party] : parties_) {
    if (party.device != device) continue;
    for (auto& [lease, loan] : party.loans) loan.keep = loan.bytes;
  }
  recall_for_lenders(device);
  recall_for_demand(device);
}

void LendingBook::recall_for_lenders(const std::string& device) {
  for (const auto& [name, lease] : leases_) {
    std::int64_t excess = lease.lent - lease.target;
    if (lease.device != device || excess <= 0) continue;
    // After a start, its lender may still come.
    if (lease.lender.empty() && !lease.is_budget && !recovered_) continue;
    std::vector<Loan*> loans;
    for (auto& [party_name, party] : parties_) {
      if (const auto found = party.loans.find(name); found != party.loans.end()) {
        loans.push_back(&found->second);
      }
    }
    std::ranges::stable_sort(loans, std::greater(), [](const Loan* loan) { return loan->bytes; });
    for (Loan* loan : loans) {
      const std::int64_t recalled = std::min(excess, loan->keep);
      loan->keep -= recalled;
      excess -= recalled;
    }
  }
}

void LendingBook::recall_for_demand(const std::string& device) {
  struct Holder {
    Party* party;
    std::int64_t keep = 0;
  };
  std::vector<Holder> holders;
  std::int64_t memory = 0;
  std::int64_t coming = 0;  // free, or already asked back
  std::int64_t lack = 0;
  std::int64_t entitled = 0;  // of the lack: what parties below their share may claim
  for (const auto& [name, lease] : leases_) {
    if (lease.device != device) continue;
    memory += lease.target;
    coming += std::max<std::int64_t>(lease.target - lease.lent, 0);
  }
  for (auto& [name, party] : parties_) {
    if (party.device != device) continue;
    Holder holder{&party};
    for (const auto& [lease, loan] : party.loans) holder.keep += loan.keep;
    holders.push_back(holder);
  }
  if (holders.empty()) return;
  const std::int64_t share = memory / static_cast<std::int64_t>(holders.size());
  for (const Holder& holder : holders) {
    lack += holder.party->want;
    entitled += std::clamp<std::int64_t>(share - holder.keep, 0, holder.party->want);
  }
  const auto recall = [](Holder& holder, std::int64_t bytes) {
    for (auto& [lease, loan] : holder.party->loans) {
      const std::int64_t part = std::min(bytes, loan.keep);
      loan.keep -= part;
      holder.keep -= part;
      bytes -= part;
    }
  };
  if (lack <= coming) return;
  std::ranges::stable_sort(holders, std::greater(), &Holder::keep);
  lack = std::max<std::int64_t>(lack - coming, 0);
  entitled = std::max<std::int64_t>(entitled - coming, 0);
  for (Holder& holder : holders) {
    if (holder.party->want > 0) continue;
    const std::int64_t bytes = std::min({lack, holder.party->spare, holder.keep});
    recall(holder, bytes);
    lack -= bytes;
    entitled = std::max<std::int64_t>(entitled - bytes, 0);
  }
  for (Holder& holder : holders) {
    const std::int64_t bytes = std::min(entitled, std::max<std::int64_t>(holder.keep - share, 0));
    recall(holder, bytes);
    entitled -= bytes;
  }
}

}  // namespace sluice
