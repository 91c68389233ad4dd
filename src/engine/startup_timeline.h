// StartupTimeline: the phases of a start as named spans, printed in one line with the time of each
// in milliseconds. Phases follow each other; those on other threads ran beside them:
//   start 812.7 ms: open 0.3, map weights 812.0 (15316.5 MiB, 19.8 GB/s); beside: tokenizer 60.1
// Owner: the command. Threads: one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace sluice {

struct StartupSpan {
  std::string name;
  Duration duration{0};
  std::uint64_t copied_bytes = 0;  // into the device's memory; 0: not shown
  Duration begin{0};               // since the start
  bool beside = false;             // other spans ran at the same time
};

class StartupTimeline {
 public:
  explicit StartupTimeline(const Clock& clock)
      : clock_(clock), start_(clock.now()), last_(start_) {}

  // Ends the span that began at the last mark() or at construction.
  void mark(std::string_view name, std::uint64_t copied_bytes = 0);
  // Adds a span of another thread, which has ended.
  void add_beside(std::string_view name, TimePoint begin, TimePoint end);

  const Clock& clock() const { return clock_; }
  const std::vector<StartupSpan>& spans() const { return spans_; }
  Duration total() const { return last_ - start_; }
  std::string line() const;

 private:
  const Clock& clock_;
  TimePoint start_;
  TimePoint last_;
  std::vector<StartupSpan> spans_;
};

}  // namespace sluice
