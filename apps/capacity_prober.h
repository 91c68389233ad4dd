// CapacityProber: runs the workload at one rate after the other and judges each run: P99 TBT as
// the clients see it, and the median scheduling delay, taken from the server's own histogram of
// queue times where its /metrics has one, else estimated from TTFT: its median less that of
// requests sent one at a time. One thread; blocks it for each run.
#pragma once

#include <string>
#include <vector>

#include "apps/bench_options.h"
#include "apps/bench_progress.h"
#include "loadgen/metrics_text.h"
#include "loadgen/plots.h"
#include "workload/capacity_search.h"
#include "workload/serving_summary.h"

namespace sluice {

class CapacityProber {
 public:
  struct Outcome {
    CapacityPoint point;
    std::string json;  // of the run, as bench serve has it
  };

  CapacityProber(const BenchArguments& arguments, BenchPlan& plan, BenchProgress& progress);

  // Finds out where the scheduling delay comes from, and says so; measures the unloaded TTFT when
  // it must.
  Status prepare();
  // An error ends the search: the server is gone, or the user interrupts.
  Result<CapacityProbe> probe(double rate);

  std::vector<Outcome>& outcomes() { return outcomes_; }
  // "server histogram", "TTFT above the unloaded one".
  std::string_view delay_source() const;

 private:
  Result<std::vector<QueueTimeBucket>> queue_times() const;
  Status measure_unloaded();
  void await_idle() const;
  Result<Duration> median_delay(const LoadResult& run,
                                const std::vector<QueueTimeBucket>& before) const;

  const BenchArguments& arguments_;
  BenchPlan& plan_;
  BenchProgress& progress_;
  bool has_histogram_ = false;
  Duration unloaded_ttft_{0};
  std::int64_t next_number_ = 0;
  std::vector<Outcome> outcomes_;
};

}  // namespace sluice
