// PrefillTracker: the requests that were dispatched and have no first token yet, of each function
// and tenant, and how long others took (PrefillMeter, for each tenant and backbone). It keeps the
// last times to the first token of each function, too, for the page.
// Owner: FunctionLoops. Threads: its own.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "request/request.h"
#include "server/live_stats.h"
#include "serverless/prefill_meter.h"

namespace sluice {

class PrefillTracker {
 public:
  // Functions are numbered from 0.
  void add_function(const std::string& tenant, std::int32_t backbone);

  void dispatched(const Request& request, TimePoint now);
  // The first token of a request. Later tokens and unknown requests change nothing.
  void first_token(RequestId request, TimePoint time);
  // The request has ended; it may never have had a token.
  void ended(RequestId request);

  // Requests without a first token.
  std::int32_t of_function(std::int32_t function) const { return at(function).prefills; }
  // Their prompts' tokens.
  std::int64_t tokens_of(std::int32_t function) const { return at(function).tokens; }
  std::int32_t all() const { return static_cast<std::int32_t>(prefills_.size()); }
  std::int32_t tenant(std::int32_t function) const { return at(function).tenant; }
  // Functions of one tenant that have such requests.
  std::int32_t functions_of(std::int32_t tenant) const {
    return busy_[static_cast<std::size_t>(tenant)];
  }
  // From a request's arrival, of the function's last requests.
  std::optional<RecentDurations::Percentiles> ttft(std::int32_t function) const {
    return at(function).ttfts.percentiles();
  }
  const PrefillMeter& meter(std::int32_t function) const {
    return meters_[static_cast<std::size_t>(at(function).meter)];
  }

 private:
  static constexpr std::size_t kTtfts = 64;  // of a function
  struct Function {
    std::int32_t tenant = 0;
    std::int32_t meter = 0;
    std::int32_t prefills = 0;
    std::int64_t tokens = 0;  // of the prefills
    RecentDurations ttfts{kTtfts};
  };
  struct Prefill {
    std::int32_t function = 0;
    std::int64_t tokens = 0;
    std::int64_t ahead = 0;  // of the function's older ones at the dispatch
    TimePoint arrival;
    TimePoint since;
  };

  const Function& at(std::int32_t function) const {
    return functions_[static_cast<std::size_t>(function)];
  }

  std::vector<Function> functions_;
  std::map<std::string, std::int32_t> tenants_;
  std::vector<std::int32_t> busy_;  // functions with prefills, by tenant
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> meter_of_;  // tenant, backbone
  std::vector<PrefillMeter> meters_;
  std::unordered_map<RequestId, Prefill> prefills_;
};

}  // namespace sluice
