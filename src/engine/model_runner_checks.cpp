// A ModelRunner beside its steps: it lets weights come in and move, and notices when their files
// change.
#include "engine/model_runner.h"

namespace sluice {

Status ModelRunner::check(TimePoint now) {
  checked_ = now;
  RETURN_IF_ERROR(poll_weights());
  RETURN_IF_ERROR(check_pages());
  return watch_.check_files(now);
}

// Weights also move while there are no steps.
std::optional<TimePoint> ModelRunner::next_check() const {
  constexpr Duration kWhileWeightsMove = std::chrono::milliseconds(5);
  if (!large_pages_ || large_pages_->finished()) return watch_.next_check();
  return checked_ + kWhileWeightsMove;
}

Status ModelRunner::check_now(TimePoint now) {
  RETURN_IF_ERROR(check(now));
  return watch_.check_files_now(now);
}

// The stream goes first: it reads the files in the order of the layers.
Status ModelRunner::poll_weights() {
  if (stream_) {
    RETURN_IF_ERROR(stream_->poll());
    if (!stream_->finished()) return {};
  }
  // No step is running now, or none that reads weights: devices that map files run a step as a
  // whole.
  if (large_pages_) large_pages_->advance();
  return {};
}

// A snapshot whose weights were made again is of no concern any more.
Status ModelRunner::check_pages() {
  if (stream_ && stream_->remade()) watch_.remove(stream_->section_begin());
  return watch_.check_pages();
}

}  // namespace sluice
