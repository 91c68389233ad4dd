// CapacityProber: runs the workload at one rate after another and measures each run: P99 TBT as the
// clients see it, and the median scheduling delay. The delay comes from the histogram of queue
// times in the server's /metrics. Without one it is estimated: the median TTFT less the median TTFT
// of requests sent one at a time. One thread; blocks it for each run.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "loadgen/load_run.h"
#include "loadgen/metrics_text.h"
#include "loadgen/plots.h"
#include "loadgen/workload_spec.h"
#include "workload/capacity_search.h"
#include "workload/serving_summary.h"

namespace sluice {

struct CapacityProberOptions {
  LoadOptions load;       // without a time limit each probe gets one of its own
  WorkloadSpec workload;  // the rate is set by each probe, and so is a count that is too small
  std::vector<TokenId> token_ids;  // that prompts are made of; empty: texts
  std::vector<double> percentiles;
  double probe_seconds = 30;        // least duration of a probe's arrivals
  std::function<void()> run_ended;  // after each probe's run; may be empty
};

class CapacityProber {
 public:
  struct Outcome {
    CapacityPoint point;
    std::string json;  // the run's summary_json()
  };

  explicit CapacityProber(CapacityProberOptions options);

  // Finds the source of the scheduling delay and logs it. Measures the unloaded TTFT if the delay
  // has to be estimated.
  Status prepare();
  // REQUIRES: prepare(). An error ends the search: the server is gone, every request failed, or the
  // user interrupts (kCancelled).
  Result<CapacityProbe> probe(double rate);

  std::vector<Outcome>& outcomes() { return outcomes_; }
  // "server histogram", "TTFT above the unloaded one".
  std::string_view delay_source() const;

 private:
  Result<LoadResult> run(LoadOptions load, const Workload& workload);
  Result<std::vector<QueueTimeBucket>> queue_times() const;
  Status measure_unloaded();
  void await_idle() const;
  Result<Duration> median_delay(const LoadResult& run,
                                const std::vector<QueueTimeBucket>& before) const;

  CapacityProberOptions options_;
  bool has_histogram_ = false;
  Duration unloaded_ttft_{0};
  std::int64_t next_number_ = 0;
  std::vector<Outcome> outcomes_;
};

}  // namespace sluice
