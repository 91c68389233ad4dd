#include "function_sim/call_times.h"

#include <algorithm>

namespace sluice {

CallTimes::CallTimes(std::size_t calls) {
  ttft_.reserve(calls);
  e2e_.reserve(calls);
}

void CallTimes::waited(const Wait& wait, const StartParts& parts) {
  const auto seconds = [](TimePoint from, TimePoint to) {
    return to_seconds(std::max(to - from, Duration(0)));
  };
  add(CallPart::kPlace, seconds(wait.arrival, wait.started));
  add(CallPart::kQueue, seconds(std::max(wait.arrival, wait.ready), wait.until));
  const double start = seconds(wait.started, wait.ready);
  if (start <= 0) return;
  // A call that came during the start has its share of each part.
  const double share = seconds(std::max(wait.arrival, wait.started), wait.ready) / start;
  const double own = parts.libraries + parts.backbone + parts.adapter + parts.kernels;
  add(CallPart::kLibraries, share * parts.libraries);
  add(CallPart::kBackbone, share * parts.backbone);
  add(CallPart::kAdapter, share * parts.adapter);
  add(CallPart::kKernels, share * parts.kernels);
  add(CallPart::kUnderWay, share * std::max(start - own, 0.0));
}

double CallTimes::first_token(Duration since_arrival, Duration prefill, double http_s) {
  const double ttft = to_seconds(since_arrival) + http_s;
  add(CallPart::kHttp, http_s);
  add(CallPart::kPrefill, to_seconds(prefill));
  ttft_.push_back(static_cast<float>(ttft));
  return ttft;
}

void CallTimes::last_token(Duration since_arrival, Duration decode, std::int32_t output_tokens,
                           double http_s) {
  e2e_.push_back(static_cast<float>(to_seconds(since_arrival) + http_s));
  if (output_tokens > 1) tpot_sum_ += to_seconds(decode) / (output_tokens - 1);
  add(CallPart::kDecode, to_seconds(decode));
}

double CallTimes::tpot() const {
  return ttft_.empty() ? 0 : tpot_sum_ / static_cast<double>(ttft_.size());
}

std::array<double, kCallParts> CallTimes::parts() const {
  std::array<double, kCallParts> parts = parts_;
  for (double& part : parts) part /= std::max(1.0, static_cast<double>(ttft_.size()));
  return parts;
}

Quantiles CallTimes::quantiles_of(std::vector<float> seconds) {
  Quantiles result;
  if (seconds.empty()) return result;
  std::ranges::sort(seconds);
  double sum = 0;
  for (const float one : seconds) sum += static_cast<double>(one);
  result.mean = sum / static_cast<double>(seconds.size());
  result.p50 = static_cast<double>(seconds[seconds.size() / 2]);
  result.p90 = static_cast<double>(seconds[seconds.size() * 90 / 100]);
  result.p99 = static_cast<double>(seconds[seconds.size() * 99 / 100]);
  return result;
}

}  // namespace sluice
