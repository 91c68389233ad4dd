#include "engine/startup_timeline.h"

#include <fmt/format.h>

namespace sluice {

void StartupTimeline::mark(std::string_view name) {
  const TimePoint now = clock_.now();
  spans_.push_back({std::string(name), now - last_});
  last_ = now;
}

std::string StartupTimeline::line() const {
  std::string text = fmt::format("start {:.1f} ms:", to_milliseconds(total()));
  for (const StartupSpan& span : spans_) {
    text += fmt::format("{} {} {:.1f}", &span == spans_.data() ? "" : ",", span.name,
                        to_milliseconds(span.duration));
  }
  return text;
}

}  // namespace sluice
