#include "loadgen/progress_line.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice {
namespace {

constexpr std::int64_t kBarCells = 20;

std::string short_time(Duration duration) {
  const double ms = to_milliseconds(duration);
  if (ms < 10) return fmt::format("{:.1f} ms", ms);
  if (ms < 10000) return fmt::format("{:.0f} ms", ms);
  return fmt::format("{:.1f} s", ms / 1000);
}

double per_second(std::int64_t count, Duration elapsed) {
  const double in_seconds = to_seconds(elapsed);
  return in_seconds > 0 ? static_cast<double>(count) / in_seconds : 0;
}

}  // namespace

std::string progress_line(const LoadProgress& progress, bool bar) {
  const std::int64_t done = progress.completed + progress.failed;
  std::string line;
  if (bar) {
    const std::int64_t full = done * kBarCells / std::max<std::int64_t>(progress.total, 1);
    line = "[" + std::string(static_cast<std::size_t>(full), '#') +
           std::string(static_cast<std::size_t>(kBarCells - full), '.') + "] ";
  }
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(progress.elapsed).count();
  line += fmt::format(
      "{}/{}  {} running  {} failed  {:.1f} req/s  {:.0f} tok/s  P99 TTFT {}, TBT {}  {}:{:02}",
      done, progress.total, progress.in_flight, progress.failed,
      per_second(progress.completed, progress.elapsed),
      per_second(progress.output_tokens, progress.elapsed), short_time(progress.p99_ttft),
      short_time(progress.p99_tbt), seconds / 60, seconds % 60);
  return line;
}

}  // namespace sluice
