// TurnGate: a function process's end of its turns (turn_page.h). The engine's thread asks for a
// turn when it has something to compute, and returns the turn between two steps: when nothing is
// left to compute, or once the server wants it back. Without others that wait, a step costs two
// reads of memory and no system call.
//
// Owner: the function process. Threads: enter() and leave() on the engine's; stop() on any.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "base/result.h"
#include "function/turn_page.h"
#include "server/step_gate.h"
#include "turns/turn_times.h"

namespace sluice {

class TurnGate final : public StepGate {
 public:
  // The descriptors of TurnPages; `bell` stays the caller's. REQUIRES: `clock` is the clock of the
  // server.
  static Result<std::unique_ptr<TurnGate>> open(int grant, int request, int bell,
                                                const Clock& clock);

  // While another function waits, a step should take no longer than this.
  static constexpr Duration kSharedStep = kSharedTurnStep;
  static constexpr Duration kLongestStep = kLongestTurnStep;

  void enter() override;
  Duration longest_step() const override;
  void leave(bool more) override;
  // From now on, enter() returns without a turn: the engine ends. A thread that waits returns too.
  void stop();

 private:
  TurnGate(MappedPage<const TurnGrant> grant, MappedPage<TurnRequest> request, int bell,
           const Clock& clock)
      : grant_(std::move(grant)), request_(std::move(request)), bell_(bell), clock_(clock) {}

  void tell(bool wants);

  const MappedPage<const TurnGrant> grant_;
  const MappedPage<TurnRequest> request_;
  const int bell_;
  const Clock& clock_;
  std::atomic<bool> stopping_{false};
  // The engine's thread.
  std::uint32_t returned_ = 0;  // the last turn that this has returned
  bool asked_ = false;
  bool holds_ = false;
};

}  // namespace sluice
