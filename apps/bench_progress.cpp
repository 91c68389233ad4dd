#include "apps/bench_progress.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "load/progress_line.h"

namespace sluice {
namespace {

constexpr Duration kRedraw = std::chrono::milliseconds(250);
constexpr Duration kPlainLine = std::chrono::seconds(10);

}  // namespace

BenchProgress::BenchProgress(bool enabled)
    : enabled_(enabled), terminal_(isatty(STDERR_FILENO) != 0) {}

void BenchProgress::attach(LoadOptions& options) {
  if (!enabled_) return;
  options.progress_every = terminal_ ? kRedraw : kPlainLine;
  options.progress = [this](const LoadProgress& progress) { show(progress); };
}

void BenchProgress::show(const LoadProgress& progress) {
  // Without a terminal the first one says nothing yet.
  if (!terminal_ && progress.elapsed < kRedraw && progress.completed + progress.failed == 0) return;
  const std::string line = progress_line(progress, terminal_);
  std::fprintf(stderr, terminal_ ? "\r\x1b[K%s" : "%s\n", line.c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void BenchProgress::end() {
  if (std::exchange(drawn_, false) && terminal_) std::fputc('\n', stderr);
}

}  // namespace sluice
