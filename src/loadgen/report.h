// A report: one self-contained HTML page (figures inline, light and dark), and in the same folder
// each plot as PNG and SVG with its data and gnuplot commands.
// One thread; runs gnuplot and waits for it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "loadgen/load_run.h"
#include "loadgen/plots.h"

namespace sluice {

struct ReportInput {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts;  // what was measured
  std::string table;                                       // as on the terminal
  const LoadResult* run = nullptr;                         // of bench serve
  std::vector<CapacityPoint> probes;                       // of bench capacity
  std::vector<Plot> plots;                                 // further plots, drawn unchanged
  double tbt_slo_ms = 0;
};

struct ReportFiles {
  std::string page;
  std::string plot_problem;  // not empty: why there are tables only
};

// Creates the folder before a long run, so that an error is known at once.
Status prepare_report(const std::string& folder);

// REQUIRES: prepare_report(). Errors name the file.
Result<ReportFiles> write_report(const std::string& folder, const ReportInput& input);

}  // namespace sluice
