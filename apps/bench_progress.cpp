#include "apps/bench_progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "loadgen/progress_line.h"

namespace sluice {
namespace {

constexpr Duration kRedraw = std::chrono::milliseconds(250);
constexpr Duration kPlainLine = std::chrono::seconds(10);

// A line that wraps cannot be drawn again in its place.
std::size_t terminal_columns() {
  winsize size{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col - 1U : 200U;
}

}  // namespace

BenchProgress::BenchProgress(bool enabled)
    : enabled_(enabled), terminal_(isatty(STDERR_FILENO) != 0) {}

Duration BenchProgress::every() const {
  if (!enabled_) return Duration(0);
  return terminal_ ? kRedraw : kPlainLine;
}

void BenchProgress::show(const LoadProgress& progress) {
  // Without a terminal, the first line would have no information yet.
  if (!terminal_ && progress.elapsed < kRedraw && progress.completed + progress.failed == 0) return;
  std::string line = progress_line(progress, terminal_);
  if (terminal_) line.resize(std::min(line.size(), terminal_columns()));
  std::fprintf(stderr, terminal_ ? "\r\x1b[K%s" : "%s\n", line.c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void BenchProgress::end() {
  if (std::exchange(drawn_, false) && terminal_) std::fputc('\n', stderr);
}

}  // namespace sluice
