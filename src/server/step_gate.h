// StepGate: lets an engine's thread compute, or makes it wait. A function process has one, because
// processes take turns at the cores; an engine that has the cores to itself has none.
// Threads: the engine's.
#pragma once

#include "base/clock.h"

namespace sluice {

class StepGate {
 public:
  virtual ~StepGate() = default;
  // Returns once the engine may compute. Called before each step.
  virtual void enter() = 0;
  // How long the next step should take at most, if the engine can predict it; Duration::max(): as
  // long as it likes. Called after enter().
  virtual Duration longest_step() const = 0;
  // Called after each step. `more`: there is more to compute. Without a call of enter() since the
  // last turn ended, does nothing.
  virtual void leave(bool more) = 0;
};

}  // namespace sluice
