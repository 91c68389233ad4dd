#include "workload/autoscaler.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <string>

namespace sluice {
namespace {

constexpr double kBurst = 1.5;  // times the rate
constexpr double kLeast = 1e-3;
constexpr double kMost = 1e6;

}  // namespace

Result<AutoscaleOptions> parse_autoscale(std::string_view text) {
  std::array<double, 3> values{};
  std::string_view rest = text;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const bool last = i + 1 == values.size();
    const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), values[i]);
    const bool number = error == std::errc() && stop == part.data() + part.size();
    if (!number || !(values[i] >= kLeast && values[i] <= kMost) ||
        last != (comma == std::string_view::npos)) {
      return invalid_argument(fmt::format(
          "'{}' is not RATE,CHECK,START: requests per second and two times in seconds, each from "
          "{} to {}",
          text, kLeast, kMost));
    }
    if (!last) rest.remove_prefix(comma + 1);
  }
  return AutoscaleOptions{values[0], from_seconds(values[1]), from_seconds(values[2])};
}

// Ends the windows before `now`.
void Autoscaler::end_windows(Duration now) {
  while (now >= window_start_ + options_.check) {
    const double most = kBurst * options_.rate * to_seconds(options_.check);
    if (!ready_at_ && static_cast<double>(in_window_) > most) {
      burst_start_ = window_start_;
      in_burst_ = in_window_;
      ready_at_ = window_start_ + options_.check + options_.start;
    }
    window_start_ += options_.check;
    in_window_ = 0;
  }
}

bool Autoscaler::redirect(Duration arrival) {
  end_windows(arrival);
  ++in_window_;
  if (!ready_at_) return false;
  ++in_burst_;
  if (arrival < *ready_at_) return false;
  const double expected = options_.rate * to_seconds(arrival - burst_start_);
  if (static_cast<double>(in_burst_ - redirected_) < expected + 1) return false;
  ++redirected_;
  return true;
}

}  // namespace sluice
