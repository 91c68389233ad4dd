#include "scheduler/client_ledger.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace sluice {

std::int32_t ClientLedger::arrive(std::string_view key, std::int32_t weight) {
  CHECK(weight >= 1);
  const auto found = clients_.find(key);
  const std::int32_t client = found == clients_.end() ? open(key) : found->second;
  Account& account = accounts_[index(client)];
  account.weight = weight;
  if (account.queued == 0) account.served = raised(account.served);
  ++account.queued;
  if (account.alive++ == 0) --num_idle_;
  return client;
}

std::int32_t ClientLedger::open(std::string_view key) {
  if (free_.empty()) {
    free_.push_back(static_cast<std::int32_t>(accounts_.size()));
    accounts_.emplace_back();
  }
  const std::int32_t client = free_.back();
  free_.pop_back();
  Account& account = accounts_[index(client)];
  account = {.key = std::string(key), .used = true};
  clients_.emplace(account.key, client);
  ++num_idle_;
  return client;
}

// Stops at the first client that is not ahead; at once under policies that charge nothing (all but
// `vtc`).
double ClientLedger::raised(double own) const {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  double least = kNone;
  for (const Account& account : accounts_) {
    if (account.queued == 0) continue;
    least = std::min(least, account.served);
    if (least <= own) return own;
  }
  if (least != kNone) return least;
  return std::max(own, last_left_ < 0 ? last_served_ : served(last_left_));
}

void ClientLedger::dequeue(std::int32_t client) {
  Account& account = accounts_[index(client)];
  CHECK(account.queued > 0);
  if (--account.queued == 0) last_left_ = client;
}

void ClientLedger::finish(std::int32_t client) {
  Account& account = accounts_[index(client)];
  CHECK(account.alive > account.queued);
  if (--account.alive > 0) return;
  if (++num_idle_ > kMaxIdle) forget_idle();
}

// First forgets clients whose counter would be raised on their return anyway, which loses nothing.
// If those are too few, forgets the smallest counters down to half of the limit, so that the cost
// is spread over many arrivals.
void ClientLedger::forget_idle() {
  const double floor = raised(0);
  std::vector<std::int32_t> idle;
  for (std::size_t i = 0; i < accounts_.size(); ++i) {
    if (accounts_[i].used && accounts_[i].alive == 0) idle.push_back(static_cast<std::int32_t>(i));
  }
  std::sort(idle.begin(), idle.end(),
            [&](std::int32_t a, std::int32_t b) { return served(a) < served(b); });
  for (const std::int32_t client : idle) {
    if (served(client) > floor && num_idle_ <= kMaxIdle / 2) break;
    forget(client);
  }
}

void ClientLedger::forget(std::int32_t client) {
  Account& account = accounts_[index(client)];
  if (last_left_ == client) {
    last_left_ = -1;
    last_served_ = account.served;
  }
  clients_.erase(account.key);
  account = {};
  free_.push_back(client);
  --num_idle_;
}

void ClientLedger::check_integrity(std::size_t queued, std::size_t alive) const {
  std::size_t idle = 0;
  std::size_t used = 0;
  for (const Account& account : accounts_) {
    CHECK(account.queued >= 0 && account.queued <= account.alive);
    CHECK(account.used || (account.alive == 0 && account.served == 0));
    queued -= index(account.queued);
    alive -= index(account.alive);
    used += account.used ? 1 : 0;
    idle += account.used && account.alive == 0 ? 1 : 0;
  }
  CHECK(queued == 0 && alive == 0);
  CHECK(idle == num_idle_ && used == clients_.size() && used + free_.size() == accounts_.size());
}

}  // namespace sluice
