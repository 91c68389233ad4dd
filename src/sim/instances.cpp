#include "sim/instances.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "workload/number_list.h"

namespace sluice {
namespace {

constexpr double kMostCount = 1024;
constexpr double kMostSeconds = 1e6;

}  // namespace

Result<InstanceOptions> parse_instances(std::string_view text) {
  auto values = parse_number_list(text, 4).value_or(std::vector<double>{});
  bool valid = values.size() >= 3;
  values.resize(4);
  for (std::size_t i = 0; i < values.size() && valid; ++i) {
    const double value = values[i];
    valid = i < 2 ? value >= 1 && value <= kMostCount && value == std::floor(value)
                  : value >= 0 && value <= kMostSeconds;
  }
  if (!valid) {
    return invalid_argument(fmt::format(
        "'{}' is not MOST,ROOM,START or MOST,ROOM,START,IDLE: two counts from 1 to {}, and seconds "
        "from 0 to {}",
        text, kMostCount, kMostSeconds));
  }
  return InstanceOptions{static_cast<std::int32_t>(values[0]), static_cast<std::int32_t>(values[1]),
                         from_seconds(values[2]), from_seconds(values[3])};
}

Instances::Instances(const InstanceOptions& options, const ReplicaOptions& replica, StepCost& cost,
                     ServingRecorder& recorder)
    : options_(options), replica_(replica), cost_(cost), recorder_(recorder) {}

void Instances::end_idle(Duration now) {
  std::erase_if(instances_, [&](const std::unique_ptr<Replica>& instance) {
    if (instance->load() > 0 || instance->last_end() + options_.idle > now) return false;
    ended_ += instance->stats();
    last_end_ = std::max(last_end_, instance->last_end());
    return true;
  });
}

Replica& Instances::choose(Duration now) {
  const auto with_room = std::ranges::find_if(
      instances_, [&](const auto& instance) { return instance->load() < options_.room; });
  if (with_room != instances_.end()) return **with_room;
  if (static_cast<std::int32_t>(instances_.size()) == options_.most) {
    return **std::ranges::min_element(instances_, {},
                                      [](const auto& instance) { return instance->load(); });
  }
  ReplicaOptions own = replica_;
  own.seed += static_cast<std::uint64_t>(starts_++);
  own.ready = now + options_.start;
  instances_.push_back(std::make_unique<Replica>(own, cost_, recorder_));
  return *instances_.back();
}

void Instances::add(const WorkloadRequest& request) {
  for (const auto& instance : instances_) instance->run_until(request.arrival);
  end_idle(request.arrival);
  choose(request.arrival).add(request);
}

void Instances::finish() {
  for (const auto& instance : instances_) instance->finish();
}

ReplicaStats Instances::stats() const {
  ReplicaStats sum = ended_;
  for (const auto& instance : instances_) sum += instance->stats();
  return sum;
}

Duration Instances::last_end() const {
  Duration last = last_end_;
  for (const auto& instance : instances_) last = std::max(last, instance->last_end());
  return last;
}

}  // namespace sluice
