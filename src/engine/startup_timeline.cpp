#include "engine/startup_timeline.h"

#include <fmt/format.h>

namespace sluice {
namespace {

std::string span_text(const StartupSpan& span) {
  std::string text = fmt::format("{} {:.1f}", span.name, to_milliseconds(span.duration));
  if (span.copied_bytes == 0 || span.duration.count() == 0) return text;
  const auto bytes = static_cast<double>(span.copied_bytes);
  return text + fmt::format(" ({:.1f} MiB, {:.1f} GB/s)", bytes / 0x1p20,
                            bytes / static_cast<double>(span.duration.count()));
}

}  // namespace

void StartupTimeline::mark(std::string_view name, std::uint64_t copied_bytes) {
  const TimePoint now = clock_.now();
  spans_.push_back({std::string(name), now - last_, copied_bytes, last_ - start_, false});
  last_ = now;
}

void StartupTimeline::add_beside(std::string_view name, TimePoint begin, TimePoint end) {
  spans_.push_back({std::string(name), end - begin, 0, begin - start_, true});
}

std::string StartupTimeline::line() const {
  std::string spans;
  std::string beside;
  for (const StartupSpan& span : spans_) {
    std::string& text = span.beside ? beside : spans;
    text += (text.empty() ? " " : ", ") + span_text(span);
  }
  return fmt::format("start {:.1f} ms:{}{}{}", to_milliseconds(total()), spans,
                     beside.empty() ? "" : "; beside:", beside);
}

}  // namespace sluice
