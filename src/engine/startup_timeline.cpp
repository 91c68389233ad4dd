#include "engine/startup_timeline.h"

#include <fmt/format.h>

namespace sluice {

void StartupTimeline::mark(std::string_view name, std::uint64_t copied_bytes) {
  const TimePoint now = clock_.now();
  spans_.push_back({std::string(name), now - last_, copied_bytes});
  last_ = now;
}

std::string StartupTimeline::line() const {
  std::string text = fmt::format("start {:.1f} ms:", to_milliseconds(total()));
  for (const StartupSpan& span : spans_) {
    text += fmt::format("{} {} {:.1f}", &span == spans_.data() ? "" : ",", span.name,
                        to_milliseconds(span.duration));
    if (span.copied_bytes == 0 || span.duration.count() == 0) continue;
    const auto bytes = static_cast<double>(span.copied_bytes);
    text += fmt::format(" ({:.1f} MiB, {:.1f} GB/s)", bytes / 0x1p20,
                        bytes / static_cast<double>(span.duration.count()));
  }
  return text;
}

}  // namespace sluice
