// BenchProgress: shows a run's progress on stderr: on a terminal one line that is redrawn,
// elsewhere a plain line every ten seconds. One thread.
#pragma once

#include "loadgen/load_run.h"

namespace sluice {

class BenchProgress {
 public:
  explicit BenchProgress(bool enabled);

  // Makes the run report to this object. REQUIRES: this outlives the run.
  template <class Options>
  void attach(Options& options) {
    options.progress_every = every();
    options.progress = [this](const LoadProgress& progress) { show(progress); };
  }
  // Ends the line, so that others may write.
  void end();

 private:
  Duration every() const;  // 0: never
  void show(const LoadProgress& progress);

  bool enabled_;
  bool terminal_;
  bool drawn_ = false;
};

}  // namespace sluice
