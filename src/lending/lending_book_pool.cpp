// How much of a device's memory a party may have now.
#include <algorithm>
#include <cstdint>

#include "lending/lending_book.h"

namespace sluice {

LendingBook::Leases::const_iterator LendingBook::first_lease_of(const std::string& party) const {
  return leases_.lower_bound(party + "/");
}

bool LendingBook::is_lease_of(const std::string& lease, const std::string& party) {
  return lease.size() > party.size() && lease[party.size()] == '/' && lease.starts_with(party);
}

// Most messages are heartbeats that change nothing, so the sums are kept.
const LendingBook::Pool& LendingBook::pool_of(const std::string& device) const {
  const auto found = pools_.find(device);
  if (found != pools_.end()) return found->second;
  return pools_.emplace(device, add_up(device)).first->second;
}

LendingBook::Pool LendingBook::add_up(const std::string& device) const {
  Pool pool;
  std::int64_t memory = 0;
  std::int64_t there = 0;
  for (const auto& [name, lease] : leases_) {
    if (lease.device != device) continue;
    memory += lease.target;
    pool.free += std::max<std::int64_t>(lease.target - lease.lent, 0);
  }
  for (const auto& [name, party] : parties_) there += party.device == device ? 1 : 0;
  if (there == 0) return pool;
  pool.share = memory / there;
  for (const auto& [name, party] : parties_) {
    if (party.want == 0 || party.device != device) continue;
    std::int64_t holds = 0;
    for (const auto& [lease, loan] : party.loans) holds += loan.bytes;
    pool.reserved += std::clamp<std::int64_t>(pool.share - holds, 0, party.want);
  }
  return pool;
}

// A party gets free memory up to its share, and beyond that what no other party
// below its share waits for. Otherwise a party could take again what it has just given back.
std::int64_t LendingBook::available_to(const std::string& name, const Party& party) const {
  const Pool& pool = pool_of(party.device);
  std::int64_t free = pool.free;
  for (auto at = first_lease_of(name); at != leases_.end(); ++at) {
    if (!is_lease_of(at->first, name)) break;
    const Lease& lease = at->second;
    if (lease.lender != name || lease.device != party.device) continue;
    free -= std::max<std::int64_t>(lease.target - lease.lent, 0);
  }
  if (free == 0) return 0;
  std::int64_t held = 0;
  for (const auto& [lease, loan] : party.loans) held += loan.bytes;
  const std::int64_t reserved =
      pool.reserved - std::clamp<std::int64_t>(pool.share - held, 0, party.want);
  return std::max({free - reserved, std::min(free, pool.share - held), std::int64_t{0}});
}

}  // namespace sluice
