#include "workload/autoscaler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "workload/number_list.h"

namespace sluice {
namespace {

constexpr double kBurst = 1.5;  // times the rate
constexpr double kFewest = 4;   // requests at the rate in a window
constexpr double kLeast = 1e-3;
constexpr double kMost = 1e6;

}  // namespace

Result<AutoscaleOptions> parse_autoscale(std::string_view text) {
  const auto values = parse_number_list(text, 3);
  const auto fits = [](double value) { return value >= kLeast && value <= kMost; };
  if (!values || values->size() != 3 || !std::ranges::all_of(*values, fits)) {
    return invalid_argument(fmt::format(
        "'{}' is not RATE,CHECK,START: requests per second and two times in seconds, each from "
        "{} to {}",
        text, kLeast, kMost));
  }
  return AutoscaleOptions{(*values)[0], from_seconds((*values)[1]), from_seconds((*values)[2])};
}

Autoscaler::Autoscaler(const AutoscaleOptions& options)
    : options_(options),
      window_(std::max(options.check, from_seconds(kFewest / options.rate))),
      next_check_(options.check) {}

// Does the checks until `now`.
void Autoscaler::check(Duration now) {
  for (; now >= next_check_ && !ready_at_; next_check_ += options_.check) {
    const Duration from = std::max(Duration(0), next_check_ - window_);
    while (!recent_.empty() && recent_.front() < from) recent_.pop_front();
    const auto arrived = static_cast<std::int64_t>(recent_.size());
    if (static_cast<double>(arrived) <= kBurst * options_.rate * to_seconds(window_)) continue;
    burst_start_ = from;
    in_burst_ = arrived;
    ready_at_ = next_check_ + options_.start;
  }
}

bool Autoscaler::redirect(Duration arrival) {
  check(arrival);
  if (!ready_at_) recent_.push_back(arrival);
  if (!ready_at_) return false;
  ++in_burst_;
  if (arrival < *ready_at_) return false;
  const double expected = options_.rate * to_seconds(arrival - burst_start_);
  if (static_cast<double>(in_burst_ - redirected_) < expected + 1) return false;
  ++redirected_;
  return true;
}

}  // namespace sluice
