#include "function_sim/shared_cores.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace sluice {

double SharedCores::functions() const {
  return turns_ ? static_cast<double>(std::max<std::size_t>(1, works_of_.size())) : 1.0;
}

void SharedCores::advance(TimePoint now) {
  CHECK(now >= now_);
  own_ns_ += static_cast<double>((now - now_).count()) / functions();
  now_ = now;
}

void SharedCores::add(TimePoint now, Work work, Duration length) {
  advance(now);
  items_.push({own_ns_ + static_cast<double>(length.count()), next_order_++, work});
  ++works_of_[work.function];
}

std::optional<TimePoint> SharedCores::next_end() const {
  if (items_.empty()) return std::nullopt;
  const double left = std::max(0.0, (items_.top().end - own_ns_) * functions());
  return now_ + Duration(static_cast<std::int64_t>(std::ceil(left)));
}

std::optional<SharedCores::Work> SharedCores::take_ended(TimePoint now) {
  advance(now);
  // A fraction of a nanosecond is a rounding error of the shares.
  if (items_.empty() || items_.top().end > own_ns_ + 0.5) return std::nullopt;
  const Work work = items_.top().work;
  items_.pop();
  const auto found = works_of_.find(work.function);
  if (--found->second == 0) works_of_.erase(found);
  return work;
}

}  // namespace sluice
