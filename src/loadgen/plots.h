// The plots of a report, as data and gnuplot commands.
// Pure; any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "loadgen/load_run.h"

namespace sluice {

// One probe of a capacity search.
struct CapacityPoint {
  double rate = 0;               // nominal, requests per second
  double realised = 0;           // of the arrivals
  double output_throughput = 0;  // tokens per second
  double p99_tbt_ms = 0;
  double median_ttft_ms = 0;
  double median_delay_ms = 0;
  bool met = false;
};

struct Plot {
  std::string name;  // of its files: "latency_cdf"
  std::string title;
  std::string caption;                                    // what it shows
  std::string commands;                                   // without terminal and output
  std::vector<std::pair<std::string, std::string>> data;  // file, content
};

// The plots of one run: latencies, TBT over time, requests over time and, if the server reports it,
// its batch. Empty plots are left out.
std::vector<Plot> run_plots(const LoadResult& result);

// Latency over load, of the probes of a search; nothing for fewer than two.
std::vector<Plot> capacity_plots(std::vector<CapacityPoint> points, double tbt_slo_ms);

}  // namespace sluice
