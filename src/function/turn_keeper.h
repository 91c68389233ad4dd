// TurnKeeper: gives function processes turns at the device (turn_page.h), in the order of a
// TurnLedger, and enforces that they keep to them. At most Options::places functions compute at a
// time. A function that is alone keeps its turn; when another waits, its turn is wanted back after
// Options::quantum, or later if its tenant had less turn time until then. A key that leaves a part
// of its share unused goes ahead of one that asks for more than its share, by at most
// Options::credit; meanwhile streams get a turn each Options::patience (turn_ledger.h).
//
// Among functions of one tenant the one that is due first is next. A function is due when it owes
// a client tokens, by what the server knows (due_times.h), and never sooner than due_after_turn
// after its last turn. So one that withholds tokens, or whose prompt takes many turns, does not go
// ahead of its siblings again and again: once a function is due, each sibling has at most one turn
// before it.
//
// Limits, for functions that no longer keep to the protocol:
// - A turn that is not returned within suspend_after of the moment when it was wanted back is taken
//   away: the process is stopped (SIGSTOP), and goes on where it was when it is next. Until it
//   returns that turn, it is stopped again as soon as the turn is wanted back. So it has its share,
//   however long its steps are.
// - If it has computed for longer than an honest step may take, it is also weakened for weak_for,
//   or until it returns the turn. Beyond suspend_after, an honest step takes a slow read of the
//   weights (add()), or twice what a step of this function took lately, and at most
//   longest_step.
// - A process that uses CPU time outside of its turns beyond free_cores and free_burst is stopped
//   and weakened too.
// - A turn in which the process computed for kill_after after others wanted it (while the process
//   was stopped does not count), and the strikes_to_kill-th time outside of turns, kill the
//   process. Such times are forgotten once there was none for forgive_after.
//
// attend() does all of it in one pass. A thread calls it whenever a bell has rung, and at the time
// that the last call returned (TurnService); tests call it by hand.
// Owner: TurnService. Threads: any. The processes' callbacks are called with the lock held.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "function/due_times.h"
#include "function/turn_page.h"
#include "turns/turn_ledger.h"
#include "turns/turn_times.h"

namespace sluice {

// The power over a function's process.
class TurnProcess {
 public:
  virtual ~TurnProcess() = default;
  virtual Duration cpu_time() const = 0;  // of all its threads, since its start
  virtual void stop() = 0;
  virtual void resume() = 0;
  virtual void kill() = 0;
};

class TurnKeeper {
 public:
  struct Options {
    std::int32_t places = 1;   // functions that compute at a time
    std::int32_t threads = 1;  // of each function
    Duration quantum = kTurnQuantum;
    Duration suspend_after = std::chrono::milliseconds(500);
    Duration weak_for = std::chrono::seconds(5);
    Duration longest_step = std::chrono::seconds(30);  // of an honest function, beside others
    Duration kill_after = std::chrono::minutes(2);     // far beyond any honest step
    // How often CPU times are compared while a function waits or computes.
    Duration check = std::chrono::milliseconds(100);
    // CPU seconds per second outside of turns, for frames; and as many seconds at once.
    double free_cores = 0.25;
    double free_cores_per_thread = 0.05;  // pool threads spin for a moment after a turn
    Duration free_burst = std::chrono::milliseconds(250);
    std::int32_t strikes_to_kill = 3;
    Duration credit = kFirstTokenDue;
    Duration patience = kNextTokenDue;
    // How soon after its turn a function is due again, at the earliest.
    Duration due_after_turn = kNextTokenDue;
    Duration forgive_after = std::chrono::minutes(10);
  };
  using SeatId = std::int64_t;

  TurnKeeper(const Options& options, const Clock& clock);

  // A new function. `slow_step`: the time of its shortest step if the machine is slow. REQUIRES:
  // `pages` lives until remove().
  SeatId add(TurnPages& pages, const std::string& tenant, Duration slow_step = Duration(0));
  // The function's process runs. Its limits hold from now on.
  void attach(SeatId seat, std::unique_ptr<TurnProcess> process);
  // Its engine is ready: its CPU time counts from now on. The start of an engine takes no turn.
  void watch_cpu(SeatId seat);
  void set_tenant(SeatId seat, const std::string& tenant);
  // When the function owes its clients tokens (OutstandingRequests::due()).
  void set_due(SeatId seat, std::optional<TimePoint> due);
  void remove(SeatId seat);

  // Reads what the functions ask, and grants, takes back and enforces. Returns the time of the next
  // call, if no bell rings before; nothing: when a bell rings.
  std::optional<TimePoint> attend();

  // The turn time of the function so far.
  Duration turn_time(SeatId seat) const;
  // How long the function has waited for turns so far, or to go on in one.
  Duration waited(SeatId seat) const;
  // Why the keeper killed the process.
  std::optional<Error> failure(SeatId seat) const;
  struct Totals {
    std::vector<TurnLedger::Usage> usage;  // turn time by tenant
    std::int64_t suspensions = 0;          // with which functions were weakened
    std::int64_t kills = 0;
  };
  Totals totals() const;
  // Whether a function has a turn or waits for one.
  bool is_busy() const;
  void check_integrity() const;

 private:
  enum class State : std::uint8_t {
    kIdle,
    kWaiting,
    kComputing,
    kSuspended,  // it has a turn, but its process is stopped; it waits to go on
  };
  struct Seat {
    TurnPages* pages = nullptr;
    std::unique_ptr<TurnProcess> process;  // null: not yet attached
    TurnLedger::FunctionId function = 0;
    std::string tenant;
    Duration slow_step{0};
    State state = State::kIdle;
    std::uint32_t turn = 0;        // the number of the last one
    std::optional<TimePoint> due;  // of set_due()
    TimePoint not_due_before;      // by its last turn
    TimePoint begun;               // when it last got a place
    TimePoint charged;             // until when its turn is charged
    Duration computed{0};          // in all its turns, until then
    TimePoint waits_since;         // while it waits for a place
    Duration waited{0};            // before that
    std::optional<TimePoint> wanted_back;
    bool taken = false;      // this turn was taken away before
    bool weakened = false;   // for this turn, once
    Duration overdue{0};     // of this turn: how long it went on although others wanted it
    Duration usual_step{0};  // the longest lately, as far as others waited for its end
    bool stopped = false;
    std::optional<TimePoint> weak_until;
    bool weak_for_turn = false;  // until it returns its turn, at the latest
    // CPU time.
    bool watched = false;
    TimePoint checked;
    Duration cpu{0};
    Duration in_turn{0};  // since `checked`
    double excess = 0;    // seconds outside of turns, less what is free
    // Since there was no excess, for the log.
    struct {
      Duration passed{0};
      Duration cpu{0};
      Duration in_turn{0};
    } unexplained;
    std::int32_t strikes = 0;
    TimePoint last_strike;
    std::optional<Error> failure;
  };

  void charge(Seat& seat, TimePoint now);
  void read_request(Seat& seat, TimePoint now);
  void ask(Seat& seat, TimePoint now);
  void end_turn(Seat& seat, TimePoint now);
  void enforce(Seat& seat, TimePoint now);
  bool computes_without_turn(Seat& seat, TimePoint now);
  // How long after it was wanted back a turn may go on.
  Duration grace(const Seat& seat) const {
    return seat.taken || seat.weak_until ? Duration(0) : options_.suspend_after;
  }
  // Whether its turn has gone on for longer than an honest step may.
  bool is_too_long(const Seat& seat) const;
  static void note_step(Seat& seat);
  void suspend(Seat& seat, TimePoint now);
  void weaken(Seat& seat, TimePoint now, const std::string& reason);
  void recover(Seat& seat);
  void kill(Seat& seat, Error reason, TimePoint now);
  void grant_places(TimePoint now);
  void grant(Seat& seat, TimePoint now);
  void want_back(TimePoint now);
  static void want_back(const Seat& seat);
  std::optional<TimePoint> next_call(TimePoint now) const;
  Seat& at(SeatId seat);
  Seat& seat_of(TurnLedger::FunctionId function);

  const Options options_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  // Guarded by `mutex_`.
  TurnLedger ledger_;
  std::map<SeatId, Seat> seats_;
  SeatId next_seat_ = 0;
  std::int32_t computing_ = 0;
  std::vector<std::pair<TimePoint, Seat*>> due_;  // of want_back()
  std::int64_t suspensions_ = 0;
  std::int64_t kills_ = 0;
};

}  // namespace sluice
