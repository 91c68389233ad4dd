// CallTimes: the times of the calls of a simulation of functions, and the parts of these times.
// Owner: FunctionSimulation. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "function_sim/function_cluster.h"

namespace sluice {

struct Quantiles {  // seconds
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
};

// The parts of a call's time, from its arrival to its last token.
enum class CallPart : std::uint8_t {
  kPlace,      // no place for its instance
  kUnderWay,   // loads that others had begun
  kLibraries,  // container and libraries
  kBackbone,
  kAdapter,
  kKernels,  // context, kernels
  kQueue,
  kHttp,  // the request and its answer between client and engine
  kPrefill,
  kDecode,
};
inline constexpr std::size_t kCallParts = 10;
inline constexpr std::array<std::string_view, kCallParts> kCallPartNames = {
    "place",   "under_way", "libraries", "backbone", "adapter",
    "kernels", "queue",     "http",      "prefill",  "decode"};

class CallTimes {
 public:
  struct Wait {  // of a call that is computed from `until` on
    TimePoint arrival;
    TimePoint started;  // its instance
    TimePoint ready;
    TimePoint until;
  };

  // `calls`: as many as there are at most.
  explicit CallTimes(std::size_t calls);

  // A call has waited: for the loads of `parts`, among others.
  void waited(const Wait& wait, const StartParts& parts);
  // Seconds from the arrival to the first token, without HTTP; with it. `http_s`: of the call.
  double first_token(Duration since_arrival, Duration prefill, double http_s);
  void last_token(Duration since_arrival, Duration decode, std::int32_t output_tokens,
                  double http_s);

  // The figures of all calls so far; parts() has the mean of an answered call.
  Quantiles ttft() const { return quantiles_of(ttft_); }
  Quantiles e2e() const { return quantiles_of(e2e_); }
  double tpot() const;  // mean
  std::array<double, kCallParts> parts() const;

 private:
  static Quantiles quantiles_of(std::vector<float> seconds);
  void add(CallPart part, double seconds) { parts_[static_cast<std::size_t>(part)] += seconds; }

  std::array<double, kCallParts> parts_{};
  std::vector<float> ttft_;
  std::vector<float> e2e_;
  double tpot_sum_ = 0;
};

}  // namespace sluice
