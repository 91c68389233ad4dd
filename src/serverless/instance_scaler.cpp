#include "serverless/instance_scaler.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace sluice {
namespace {

Duration panic_window_of(const ScalerOptions& options) {
  const double seconds = to_seconds(options.stable_window) * options.panic_window_percentage / 100;
  return from_seconds(std::max(seconds, 1.0));
}

// Desired counts beyond this are no counts of instances.
constexpr double kMostInstances = 1e9;

}  // namespace

ScalerOptions scaler_options_for(Duration idle) {
  constexpr Duration kWindow = std::chrono::seconds(60);
  ScalerOptions options;
  options.stable_window = std::clamp(idle, Duration(std::chrono::seconds(1)), kWindow);
  options.scale_to_zero_pod_retention_period = std::max(idle - kWindow, Duration(0));
  return options;
}

SecondsWindow::SecondsWindow(Duration length) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(length).count();
  CHECK(seconds >= 1);
  seconds_.resize(static_cast<std::size_t>(seconds));
}

void SecondsWindow::advance(TimePoint now) {
  const std::int64_t second = std::chrono::floor<std::chrono::seconds>(now.since_start).count();
  CHECK(second >= 0 && second >= end_);
  if (second - end_ >= length()) {
    std::ranges::fill(seconds_, Second());
    total_ = 0;
    end_ = second;
  }
  while (end_ < second) {
    ++end_;
    Second& leaves = seconds_[static_cast<std::size_t>(end_ % length())];
    total_ -= leaves.mean();
    leaves = Second();
  }
}

void SecondsWindow::record(TimePoint now, double value) {
  constexpr double kMost = 1e9;
  CHECK(value >= 0);
  advance(now);
  // After a whole window without a value, the average begins anew.
  if (first_ < 0 || end_ - last_ >= length()) first_ = end_;
  last_ = end_;
  Second& second = seconds_[static_cast<std::size_t>(end_ % length())];
  total_ -= second.mean();
  second.sum += std::llround(std::min(value, kMost) * 1e6);
  ++second.count;
  total_ += second.mean();
}

double SecondsWindow::mean(TimePoint now) {
  advance(now);
  if (first_ < 0) return 0;
  const std::int64_t begin = std::max(end_ - length() + 1, first_);
  return static_cast<double>(total_) / 1e6 / static_cast<double>(end_ - begin + 1);
}

InstanceScaler::InstanceScaler(const ScalerOptions& options, TimePoint start, std::int32_t ready)
    : options_(options), stable_(options.stable_window), panic_(panic_window_of(options)) {
  CHECK(options.target > 0 && options.max_scale_up_rate > 1 && options.max_scale_down_rate > 1);
  CHECK(options.max_scale == 0 || options.max_scale >= options.min_scale);
  if (ready > 0) active_since_ = start;
  // Knative: a scaler without history keeps what is there for one window.
  if (ready <= 1) return;
  panic_since_ = start;
  max_panic_instances_ = ready;
}

void InstanceScaler::record(TimePoint now, double concurrency) {
  stable_.record(now, concurrency);
  panic_.record(now, concurrency);
}

std::int32_t InstanceScaler::desired(double concurrency, std::int32_t ready) const {
  const double count = std::ceil(concurrency / options_.target);
  const double most = std::ceil(options_.max_scale_up_rate * ready);
  const double least = std::floor(ready / options_.max_scale_down_rate);
  double bounded = std::min(std::max(count, least), most);
  if (count > 0) bounded = std::max(bounded, static_cast<double>(options_.activation_scale));
  return static_cast<std::int32_t>(std::min(bounded, kMostInstances));
}

void InstanceScaler::update_panic(TimePoint now, double panic_ratio) {
  if (panic_ratio >= options_.panic_threshold) {
    panic_since_ = now;
  } else if (panic_since_ && now - *panic_since_ > options_.stable_window) {
    panic_since_.reset();
    max_panic_instances_ = 0;
  }
}

// The most of the last scale_down_delay.
std::int32_t InstanceScaler::delayed(TimePoint now, std::int32_t instances) {
  if (options_.scale_down_delay.count() == 0) return instances;
  while (!delayed_.empty() && delayed_.back().instances <= instances) delayed_.pop_back();
  delayed_.push_back({now, instances});
  const auto is_old = [&](const Delayed& one) {
    return now - one.time >= options_.scale_down_delay;
  };
  delayed_.erase(delayed_.begin(), std::ranges::find_if_not(delayed_, is_old));
  return delayed_.front().instances;
}

// The last instance stays until it has been there for a stable window and zero has been asked for
// as long as grace and retention say.
std::int32_t InstanceScaler::to_zero(TimePoint now, std::int32_t instances, std::int32_t ready) {
  if (instances > 0 || ready == 0) {
    inactive_since_.reset();
    return instances;
  }
  if (!inactive_since_ && now - *active_since_ >= options_.stable_window) inactive_since_ = now;
  const Duration last =
      std::max(options_.scale_to_zero_grace_period, options_.scale_to_zero_pod_retention_period);
  return inactive_since_ && now - *inactive_since_ >= last ? 0 : 1;
}

ScaleDecision InstanceScaler::decide(TimePoint now, std::int32_t ready) {
  CHECK(ready >= 0);
  if (ready == 0) {
    active_since_.reset();
  } else if (!active_since_) {
    active_since_ = now;
  }
  const std::int32_t counted = std::max(ready, 1);
  const double panic_concurrency = panic_.mean(now);
  update_panic(now, std::ceil(panic_concurrency / options_.target) / counted);
  std::int32_t instances = desired(stable_.mean(now), counted);
  if (panic_since_) {
    instances = std::max(instances, desired(panic_concurrency, counted));
    max_panic_instances_ = std::max(max_panic_instances_, instances);
    instances = max_panic_instances_;
  }
  instances = std::max(delayed(now, instances), options_.min_scale);
  if (options_.max_scale > 0) instances = std::min(instances, options_.max_scale);
  return {to_zero(now, instances, ready), panic_since_.has_value()};
}

}  // namespace sluice
