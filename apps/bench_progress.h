// BenchProgress: a run's progress on stderr: one line that is drawn again and again on a terminal,
// a plain line every ten seconds elsewhere. One thread.
#pragma once

#include "load/load_run.h"

namespace sluice {

class BenchProgress {
 public:
  explicit BenchProgress(bool enabled);

  // Makes the run tell it. REQUIRES: this outlives the run.
  void attach(LoadOptions& options);
  // Ends the line, so that others may write.
  void end();

 private:
  void show(const LoadProgress& progress);

  bool enabled_;
  bool terminal_;
  bool drawn_ = false;
};

}  // namespace sluice
