#include "turns/turn_ledger.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace sluice {

TurnLedger::Function& TurnLedger::at(FunctionId id) {
  CHECK(id >= 0 && static_cast<std::size_t>(id) < functions_.size());
  Function& function = functions_[static_cast<std::size_t>(id)];
  CHECK(function.in_use);
  return function;
}

const TurnLedger::Function& TurnLedger::at(FunctionId id) const {
  return const_cast<TurnLedger*>(this)->at(id);
}

void TurnLedger::set_time(TimePoint now) {
  CHECK(now >= now_);
  now_ = now;
}

TurnLedger::FunctionId TurnLedger::add(const std::string& tenant) {
  auto free = std::ranges::find(functions_, false, &Function::in_use);
  if (free == functions_.end()) free = functions_.emplace(free);
  *free = {.tenant = tenants_.try_emplace(tenant).first, .in_use = true};
  return static_cast<FunctionId>(free - functions_.begin());
}

void TurnLedger::set_tenant(FunctionId id, const std::string& tenant) {
  Function& function = at(id);
  const State state = function.state;
  if (state != State::kIdle) deactivate(function);
  function.tenant = tenants_.try_emplace(tenant).first;
  if (state != State::kIdle) activate(function);
  function.state = state;
}

void TurnLedger::remove(FunctionId id) {
  Function& function = at(id);
  if (function.state != State::kIdle) deactivate(function);
  function.in_use = false;
}

void TurnLedger::ask(FunctionId id) {
  Function& function = at(id);
  CHECK(function.state == State::kIdle);
  activate(function);
  function.state = State::kWaiting;
  function.ticket = next_ticket_++;
  function.asked = now_;
}

void TurnLedger::set_due(FunctionId id, TimePoint due) { at(id).due = due; }

void TurnLedger::withdraw(FunctionId id) {
  Function& function = at(id);
  CHECK(function.state == State::kWaiting);
  deactivate(function);
}

void TurnLedger::begin(FunctionId id) {
  Function& function = at(id);
  CHECK(function.state == State::kWaiting);
  function.state = State::kComputing;
}

void TurnLedger::charge(FunctionId id, Duration time) {
  const Function& function = at(id);
  CHECK(function.state == State::kComputing && time >= Duration(0));
  function.tenant->second.served += time;
  function.tenant->second.used += time;
  raise_floor();
}

void TurnLedger::end(FunctionId id) {
  Function& function = at(id);
  CHECK(function.state == State::kComputing);
  deactivate(function);
}

void TurnLedger::weaken(FunctionId id) {
  Function& function = at(id);
  if (function.weak) return;
  function.weak = true;
  if (function.state != State::kIdle) --function.tenant->second.strong;
}

void TurnLedger::recover(FunctionId id) {
  Function& function = at(id);
  if (!function.weak) return;
  function.weak = false;
  if (function.state == State::kIdle) return;
  Tenant& tenant = function.tenant->second;
  if (tenant.strong++ == 0) tenant.served = std::max(tenant.served, floor_);
}

void TurnLedger::activate(Function& function) {
  Tenant& tenant = function.tenant->second;
  if (!function.weak && tenant.strong++ == 0) {
    tenant.served = std::max(tenant.served, floor_ - options_.credit);
  }
  ++tenant.active;
}

// The floor is kept, so that a tenant that was alone does not come back behind a newcomer by all
// the time that it computed.
void TurnLedger::deactivate(Function& function) {
  Tenant& tenant = function.tenant->second;
  --tenant.active;
  if (!function.weak) --tenant.strong;
  function.state = State::kIdle;
}

void TurnLedger::raise_floor() {
  const Tenant* least = nullptr;
  for (const auto& [name, tenant] : tenants_) {
    if (tenant.strong > 0 && (least == nullptr || tenant.served < least->served)) least = &tenant;
  }
  if (least != nullptr) floor_ = std::max(floor_, least->served);
}

Duration TurnLedger::right(const Function& waiting) const {
  const bool is_late = now_ - waiting.asked >= options_.patience;
  return waiting.tenant->second.served - (is_late ? options_.credit : Duration(0));
}

bool TurnLedger::goes_before(const Function& a, const Function& b) const {
  return std::tuple(a.weak, right(a), a.ticket) < std::tuple(b.weak, right(b), b.ticket);
}

std::optional<TurnLedger::FunctionId> TurnLedger::next() const {
  const Function* first = nullptr;
  for (const Function& function : functions_) {
    if (!function.in_use || function.state != State::kWaiting) continue;
    if (first == nullptr || goes_before(function, *first)) first = &function;
  }
  if (first == nullptr) return std::nullopt;
  for (const Function& function : functions_) {
    if (!function.in_use || function.state != State::kWaiting) continue;
    if (function.tenant != first->tenant || function.weak != first->weak) continue;
    if (std::tuple(function.due, function.ticket) < std::tuple(first->due, first->ticket)) {
      first = &function;
    }
  }
  return static_cast<FunctionId>(first - functions_.data());
}

std::optional<Duration> TurnLedger::lead(FunctionId id) const {
  const Function& own = at(id);
  CHECK(own.state == State::kComputing);
  std::optional<Duration> least;
  for (const Function& other : functions_) {
    if (!other.in_use || other.state != State::kWaiting || (other.weak && !own.weak)) continue;
    least = std::min(least.value_or(Duration::max()), lead(own, other));
  }
  return least;
}

// A function of its own tenant comes next at once, also if it is due later: the one that computes
// asks again, and may be next again.
Duration TurnLedger::lead(const Function& own, const Function& waiting) const {
  if (own.weak && !waiting.weak) return Duration(0);
  const Duration by_time = waiting.tenant->second.served - own.tenant->second.served;
  const Duration until_late = options_.patience - (now_ - waiting.asked);
  return std::max(std::min(by_time, std::max(by_time - options_.credit, until_late)), Duration(0));
}

std::int32_t TurnLedger::num_waiting() const {
  return static_cast<std::int32_t>(std::ranges::count_if(functions_, [](const Function& function) {
    return function.in_use && function.state == State::kWaiting;
  }));
}

std::vector<TurnLedger::Usage> TurnLedger::usage() const {
  std::vector<Usage> usage;
  for (const auto& [name, tenant] : tenants_) usage.push_back({name, tenant.used});
  return usage;
}

Duration TurnLedger::served(const std::string& tenant) const {
  const auto found = tenants_.find(tenant);
  return found == tenants_.end() ? Duration(0) : found->second.served;
}

void TurnLedger::check_integrity() const {
  std::map<std::string, Tenant> counted;
  for (const Function& function : functions_) {
    if (!function.in_use || function.state == State::kIdle) continue;
    Tenant& tenant = counted[function.tenant->first];
    ++tenant.active;
    tenant.strong += function.weak ? 0 : 1;
  }
  for (const auto& [name, tenant] : tenants_) {
    CHECK(tenant.active == counted[name].active && tenant.strong == counted[name].strong);
    CHECK(tenant.strong == 0 || tenant.served >= floor_ - options_.credit);
    CHECK(tenant.used <= tenant.served);
  }
}

}  // namespace sluice
