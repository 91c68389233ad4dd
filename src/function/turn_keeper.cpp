#include "function/turn_keeper.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/shared_futex.h"

namespace sluice {
namespace {

// How fast long steps are forgotten, by turns.
constexpr int kKeptPercent = 95;
// If the keeper was not called for longer while a function computes, the machine was paused, or the
// server was: then the function's CPU time tells how much of it is its turn.
constexpr Duration kPause = std::chrono::seconds(1);

}  // namespace

TurnKeeper::TurnKeeper(const Options& options, const Clock& clock)
    : options_(options), clock_(clock), ledger_({options.credit, options.patience}) {
  CHECK(options.places >= 1 && options.threads >= 1);
}

TurnKeeper::Seat& TurnKeeper::at(SeatId seat) {
  const auto found = seats_.find(seat);
  CHECK(found != seats_.end());
  return found->second;
}

TurnKeeper::Seat& TurnKeeper::seat_of(TurnLedger::FunctionId function) {
  const auto found = std::ranges::find_if(
      seats_, [&](const auto& entry) { return entry.second.function == function; });
  CHECK(found != seats_.end());
  return found->second;
}

TurnKeeper::SeatId TurnKeeper::add(TurnPages& pages, const std::string& tenant,
                                   Duration slow_step) {
  const std::lock_guard lock(mutex_);
  const SeatId id = next_seat_++;
  Seat& seat = seats_[id];
  seat.pages = &pages;
  seat.function = ledger_.add(tenant);
  seat.tenant = tenant;
  seat.slow_step = slow_step;
  return id;
}

void TurnKeeper::attach(SeatId seat, std::unique_ptr<TurnProcess> process) {
  const std::lock_guard lock(mutex_);
  at(seat).process = std::move(process);
}

void TurnKeeper::watch_cpu(SeatId id) {
  const std::lock_guard lock(mutex_);
  Seat& seat = at(id);
  CHECK(seat.process != nullptr);
  seat.watched = true;
  seat.checked = clock_.now();
  seat.cpu = seat.process->cpu_time();
  seat.in_turn = Duration(0);
}

void TurnKeeper::set_tenant(SeatId seat, const std::string& tenant) {
  const std::lock_guard lock(mutex_);
  ledger_.set_tenant(at(seat).function, tenant);
  at(seat).tenant = tenant;
}

void TurnKeeper::set_due(SeatId id, std::optional<TimePoint> due) {
  const std::lock_guard lock(mutex_);
  Seat& seat = at(id);
  seat.due = due;
  if (due) ledger_.set_due(seat.function, std::max(*due, seat.not_due_before));
}

void TurnKeeper::remove(SeatId id) {
  const std::lock_guard lock(mutex_);
  Seat& seat = at(id);
  charge(seat, clock_.now());
  if (seat.state == State::kComputing) --computing_;
  ledger_.remove(seat.function);
  seats_.erase(id);
}

Duration TurnKeeper::turn_time(SeatId id) const {
  const std::lock_guard lock(mutex_);
  const Seat& seat = seats_.at(id);
  const bool computes = seat.state == State::kComputing;
  return seat.computed + (computes ? clock_.now() - seat.charged : Duration(0));
}

Duration TurnKeeper::waited(SeatId id) const {
  const std::lock_guard lock(mutex_);
  const Seat& seat = seats_.at(id);
  const bool waits = seat.state == State::kWaiting || seat.state == State::kSuspended;
  return seat.waited + (waits ? clock_.now() - seat.waits_since : Duration(0));
}

std::optional<TimePoint> TurnKeeper::attend() {
  const std::lock_guard lock(mutex_);
  const TimePoint now = clock_.now();
  ledger_.set_time(now);
  for (auto& [id, seat] : seats_) charge(seat, now);
  for (auto& [id, seat] : seats_) read_request(seat, now);
  for (auto& [id, seat] : seats_) enforce(seat, now);
  grant_places(now);
  want_back(now);
  return next_call(now);
}

void TurnKeeper::charge(Seat& seat, TimePoint now) {
  if (seat.state != State::kComputing) return;
  Duration time = now - seat.charged;
  if (time > kPause && seat.watched) {
    time = std::clamp(seat.process->cpu_time() - seat.cpu, Duration(0), time);
  }
  ledger_.charge(seat.function, time);
  seat.in_turn += time;
  seat.computed += time;
  if (seat.wanted_back) {
    const Duration due = seat.taken ? Duration(0) : *seat.wanted_back - seat.charged;
    seat.overdue += std::max(time - std::max(due, Duration(0)), Duration(0));
  }
  seat.charged = now;
}

void TurnKeeper::read_request(Seat& seat, TimePoint now) {
  if (seat.failure) return;
  const std::uint32_t word = seat.pages->request().word.load(std::memory_order_acquire);
  const bool wants = (word & 1) != 0;
  const bool returned = (word & ~1U) == turn_word(seat.turn, false);
  if (returned && (seat.state == State::kComputing || seat.state == State::kSuspended)) {
    if (seat.weak_for_turn) recover(seat);
    end_turn(seat, now);
    // It returned its turn just before it was stopped.
    if (!seat.weak_until && std::exchange(seat.stopped, false)) seat.process->resume();
  }
  if (seat.state == State::kIdle && returned && wants) {
    seat.state = State::kWaiting;
    ask(seat, now);
  } else if (seat.state == State::kWaiting && !wants) {
    seat.state = State::kIdle;
    seat.waited += now - seat.waits_since;
    ledger_.withdraw(seat.function);
  }
}

// A function without requests also has work, such as moving its blocks.
void TurnKeeper::ask(Seat& seat, TimePoint now) {
  seat.waits_since = now;
  ledger_.ask(seat.function);
  const TimePoint due = seat.due.value_or(now + options_.due_after_turn);
  ledger_.set_due(seat.function, std::max(due, seat.not_due_before));
}

void TurnKeeper::end_turn(Seat& seat, TimePoint now) {
  if (seat.state == State::kComputing) {
    // It may have computed since `now` was read.
    charge(seat, clock_.now());
    ledger_.end(seat.function);
    --computing_;
  } else {
    seat.waited += now - seat.waits_since;
    ledger_.withdraw(seat.function);
  }
  note_step(seat);
  seat.state = State::kIdle;
  seat.not_due_before = now + options_.due_after_turn;
  seat.wanted_back.reset();
  TurnGrant& grant = seat.pages->grant();
  grant.return_after.store(TurnGrant::kNever, std::memory_order_relaxed);
  grant.turn.store(turn_word(seat.turn, false), std::memory_order_release);
}

void TurnKeeper::enforce(Seat& seat, TimePoint now) {
  if (seat.process == nullptr || seat.failure) return;
  if (seat.weak_until && *seat.weak_until <= now) recover(seat);
  if (seat.overdue > options_.kill_after) {
    return kill(seat,
                Error{ErrorCode::kDeadlineExceeded,
                      fmt::format("it kept its turn and computed for {:.1f} s while others waited",
                                  to_seconds(seat.overdue))},
                now);
  }
  if (seat.state == State::kComputing && seat.wanted_back &&
      now - *seat.wanted_back >= grace(seat)) {
    if (!seat.weakened && !seat.weak_until && is_too_long(seat)) {
      weaken(seat, now,
             fmt::format("does not return its turn: it computed for {:.1f} s while others waited",
                         to_seconds(seat.overdue)));
      seat.weakened = seat.weak_for_turn = true;
    }
    return suspend(seat, now);
  }
  if (!computes_without_turn(seat, now)) return;
  if (now - seat.last_strike >= options_.forgive_after) seat.strikes = 0;
  seat.last_strike = now;
  if (++seat.strikes < options_.strikes_to_kill) {
    weaken(seat, now,
           fmt::format("computes without a turn: in {:.2f} s it used {:.2f} s of CPU time, and its "
                       "turns were {:.2f} s on {} threads",
                       to_seconds(seat.unexplained.passed), to_seconds(seat.unexplained.cpu),
                       to_seconds(seat.unexplained.in_turn), options_.threads));
    return suspend(seat, now);
  }
  kill(seat, Error{ErrorCode::kDeadlineExceeded, "it computes without a turn again and again"},
       now);
}

bool TurnKeeper::is_too_long(const Seat& seat) const {
  const Duration step =
      std::min(options_.longest_step, std::max(seat.slow_step, 2 * seat.usual_step));
  return seat.overdue >= options_.suspend_after + step;
}

// A turn is wanted back at any moment of a step, so what is left of one is half of it on average.
void TurnKeeper::note_step(Seat& seat) {
  seat.usual_step = std::max(seat.overdue, seat.usual_step * kKeptPercent / 100);
}

// A leaky bucket of CPU time that no turn explains.
bool TurnKeeper::computes_without_turn(Seat& seat, TimePoint now) {
  const Duration passed = now - seat.checked;
  if (!seat.watched || seat.stopped || passed < options_.check) return false;
  const Duration cpu = seat.process->cpu_time();
  // It may have computed since `now` was read, while this thread waited for a core.
  if (seat.state == State::kComputing) seat.in_turn += clock_.now() - now;
  const double free = to_seconds(passed) *
                      (options_.free_cores + options_.free_cores_per_thread * options_.threads);
  if (seat.excess == 0) seat.unexplained = {};
  seat.unexplained.passed += passed;
  seat.unexplained.cpu += cpu - seat.cpu;
  seat.unexplained.in_turn += seat.in_turn;
  seat.excess += to_seconds(cpu - seat.cpu) - to_seconds(seat.in_turn) * options_.threads - free;
  seat.excess = std::max(seat.excess, 0.0);
  seat.checked = now;
  seat.cpu = cpu;
  seat.in_turn = Duration(0);
  return seat.excess > to_seconds(options_.free_burst);
}

void TurnKeeper::weaken(Seat& seat, TimePoint now, const std::string& reason) {
  log_warning(fmt::format(
      "a function of '{}' {}; its process is stopped and weakened for {} s, and its calls wait",
      seat.tenant, reason, to_seconds(options_.weak_for)));
  ++suspensions_;
  seat.excess = 0;
  seat.weak_until = now + options_.weak_for;
  seat.weak_for_turn = false;
  ledger_.weaken(seat.function);
}

void TurnKeeper::suspend(Seat& seat, TimePoint now) {
  seat.process->stop();
  seat.stopped = true;
  if (seat.state != State::kComputing) return;
  seat.state = State::kSuspended;
  seat.taken = true;
  seat.wanted_back.reset();
  --computing_;
  ledger_.end(seat.function);
  seat.not_due_before = now + options_.due_after_turn;
  ask(seat, now);
}

// A suspended function goes on when it is next; another one at once.
void TurnKeeper::recover(Seat& seat) {
  seat.weak_until.reset();
  seat.weak_for_turn = false;
  ledger_.recover(seat.function);
  if (!seat.stopped || seat.state == State::kSuspended) return;
  seat.stopped = false;
  seat.process->resume();
}

// The owner of the process sees its end, asks failure() and removes the seat.
void TurnKeeper::kill(Seat& seat, Error reason, TimePoint now) {
  ++kills_;
  seat.failure = std::move(reason);
  seat.process->kill();
  if (seat.state == State::kIdle) return;
  if (seat.state == State::kWaiting) ledger_.withdraw(seat.function);
  if (seat.state != State::kWaiting) end_turn(seat, now);
  seat.state = State::kIdle;
}

void TurnKeeper::grant_places(TimePoint now) {
  while (computing_ < options_.places) {
    const auto next = ledger_.next();
    if (!next) return;
    grant(seat_of(*next), now);
  }
}

void TurnKeeper::grant(Seat& seat, TimePoint now) {
  ledger_.begin(seat.function);
  ++computing_;
  seat.begun = seat.charged = now;
  seat.waited += now - seat.waits_since;
  const bool goes_on = seat.state == State::kSuspended;
  seat.state = State::kComputing;
  if (!goes_on) {
    ++seat.turn;
    seat.taken = false;
    seat.weakened = false;
    seat.overdue = Duration(0);
    TurnGrant& grant = seat.pages->grant();
    grant.turn.store(turn_word(seat.turn, true), std::memory_order_release);
    shared_futex_wake(grant.turn);
  }
  if (std::exchange(seat.stopped, false)) seat.process->resume();
}

// One turn is wanted back for each function that waits, those first that are due first.
void TurnKeeper::want_back(TimePoint now) {
  due_.clear();
  for (auto& [id, seat] : seats_) {
    if (seat.state != State::kComputing) continue;
    const auto before = std::exchange(seat.wanted_back, std::nullopt);
    if (const auto lead = ledger_.lead(seat.function)) {
      TimePoint time = std::max(seat.begun + options_.quantum, now + *lead);
      if (*lead == Duration(0) && before) time = std::min(time, *before);
      due_.emplace_back(time, &seat);
    } else {
      want_back(seat);
    }
  }
  std::ranges::sort(due_, {}, &std::pair<TimePoint, Seat*>::first);
  std::int32_t waiting = ledger_.num_waiting();
  for (const auto& [time, seat] : due_) {
    if (waiting-- > 0) seat->wanted_back = time;
    want_back(*seat);
  }
}

void TurnKeeper::want_back(const Seat& seat) {
  const std::int64_t until =
      seat.wanted_back ? seat.wanted_back->since_start.count() : TurnGrant::kNever;
  seat.pages->grant().return_after.store(until, std::memory_order_relaxed);
}

std::optional<TimePoint> TurnKeeper::next_call(TimePoint now) const {
  std::optional<TimePoint> next;
  const auto at_latest = [&](TimePoint time) { next = next ? std::min(*next, time) : time; };
  for (const auto& [id, seat] : seats_) {
    if (seat.state != State::kIdle) at_latest(now + options_.check);
    if (seat.process == nullptr || seat.failure) continue;  // no limit holds
    if (seat.weak_until) at_latest(*seat.weak_until);
    if (seat.wanted_back) at_latest(*seat.wanted_back + grace(seat));
  }
  return next;
}

std::optional<Error> TurnKeeper::failure(SeatId seat) const {
  const std::lock_guard lock(mutex_);
  const auto found = seats_.find(seat);
  return found == seats_.end() ? std::nullopt : found->second.failure;
}

TurnKeeper::Totals TurnKeeper::totals() const {
  const std::lock_guard lock(mutex_);
  return {ledger_.usage(), suspensions_, kills_};
}

bool TurnKeeper::is_busy() const {
  const std::lock_guard lock(mutex_);
  return computing_ > 0 || ledger_.num_waiting() > 0;
}

void TurnKeeper::check_integrity() const {
  const std::lock_guard lock(mutex_);
  ledger_.check_integrity();
  std::int32_t computing = 0;
  for (const auto& [id, seat] : seats_) {
    if (seat.state == State::kComputing) ++computing;
    CHECK(!(seat.state == State::kComputing && seat.stopped));
    CHECK(seat.state != State::kSuspended || seat.stopped);
    CHECK(!seat.wanted_back || seat.state == State::kComputing);
  }
  CHECK(computing == computing_ && computing <= options_.places);
}

}  // namespace sluice
