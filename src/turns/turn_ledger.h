// TurnLedger: decides which function process computes next. It counts the turn time of each tenant
// and knows which functions wait for a turn.
//
// Next is a function of the tenant with the least turn time; among tenants with equal times, of the
// one whose function has waited longest. Among a tenant's functions the one that is due first is
// next, and of those that are due at the same time the one that has waited longest.
//
// A tenant that becomes active (has a function that waits or computes) is raised to at most
// Options::credit below the floor, which is the least counter of the active tenants and never
// falls. So a tenant that leaves a part of its share unused computes at once when a call comes,
// whatever others ask for, and longer idle time earns no more. A tenant that has waited for
// Options::patience counts as if it had `credit` less: meanwhile the streams of others go on. Two
// tenants that always wait get turn times that differ by at most `credit` and a turn.
//
// A weakened function is next only when no other one waits. A tenant whose active functions are all
// weakened does not hold the floor down, and is raised to it when a function of it recovers.
//
// Source: borrowed virtual time (Duda and Cheriton, SOSP 1999), with a warp that is earned by time
// that was left unused.
// Owner: TurnKeeper. Threads: one at a time. No clock: the caller tells the time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace sluice {

class TurnLedger {
 public:
  using FunctionId = std::int32_t;

  struct Options {
    Duration credit{0};
    Duration patience{0};
  };
  TurnLedger() = default;
  explicit TurnLedger(const Options& options) : options_(options) {}

  // The time for all that follows. REQUIRES: it does not go back.
  void set_time(TimePoint now);

  // A new function, which neither waits nor computes. Its id is used again after remove().
  FunctionId add(const std::string& tenant);
  // Gives the function to another tenant. Its turns so far stay those of the tenant before.
  void set_tenant(FunctionId id, const std::string& tenant);
  void remove(FunctionId id);

  // The function waits from now on. REQUIRES: it neither waits nor computes.
  void ask(FunctionId id);
  // When it should have computed, for its place among the functions of its tenant. At first time 0.
  void set_due(FunctionId id, TimePoint due);
  // It no longer waits. REQUIRES: it waits.
  void withdraw(FunctionId id);
  // It computes from now on. REQUIRES: it waits.
  void begin(FunctionId id);
  // It has computed for `time`. REQUIRES: it computes.
  void charge(FunctionId id, Duration time);
  // It no longer computes. REQUIRES: it computes.
  void end(FunctionId id);

  void weaken(FunctionId id);
  void recover(FunctionId id);

  // The function that should compute next; none waits: nothing.
  std::optional<FunctionId> next() const;
  // How much longer `id` computes before next() has the better right to its place: zero if it has
  // it already, nothing if no function waits, or only functions that are weakened while `id` is
  // not. REQUIRES: `id` computes.
  std::optional<Duration> lead(FunctionId id) const;

  std::int32_t num_waiting() const;

  // The turn time of a tenant's functions, the ended ones included.
  struct Usage {
    std::string tenant;
    Duration time{0};
  };
  // All tenants that ever had a function, by name.
  std::vector<Usage> usage() const;
  // The counter that the order follows: turn time, and what the tenant was raised by.
  Duration served(const std::string& tenant) const;
  // CHECKs the counts of functions against those of tenants.
  void check_integrity() const;

 private:
  enum class State : std::uint8_t { kIdle, kWaiting, kComputing };
  // Tenants are never forgotten: they are API keys, which the operator names.
  struct Tenant {
    Duration served{0};
    Duration used{0};
    std::int32_t active = 0;  // functions that wait or compute
    std::int32_t strong = 0;  // of these, not weakened
  };
  using Tenants = std::map<std::string, Tenant>;
  struct Function {
    Tenants::iterator tenant;
    State state = State::kIdle;
    bool weak = false;
    bool in_use = false;
    std::uint64_t ticket = 0;  // grows with each ask
    TimePoint asked = {};
    TimePoint due = {};
  };

  Function& at(FunctionId id);
  const Function& at(FunctionId id) const;
  void activate(Function& function);
  void deactivate(Function& function);
  void raise_floor();
  bool goes_before(const Function& a, const Function& b) const;
  // The counter of its tenant, less the credit of one that has waited for long.
  Duration right(const Function& waiting) const;
  Duration lead(const Function& own, const Function& waiting) const;

  const Options options_;
  TimePoint now_;
  Tenants tenants_;
  std::vector<Function> functions_;
  std::uint64_t next_ticket_ = 0;
  Duration floor_{0};
};

}  // namespace sluice
