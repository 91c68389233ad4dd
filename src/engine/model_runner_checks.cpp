// A ModelRunner beside its steps: it lets weights come in and move, and notices when their files
// change.
#include "engine/model_runner.h"

namespace sluice {

namespace {

constexpr Duration kIdleMoves = std::chrono::milliseconds(5);  // from one to the next

}  // namespace

Status ModelRunner::check(TimePoint now) {
  RETURN_IF_ERROR(poll_stream());
  move_weights(now);
  RETURN_IF_ERROR(check_pages());
  return watch_.check_files(now);
}

// Weights also move while there are no steps.
std::optional<TimePoint> ModelRunner::next_check() const {
  if (!large_pages_ || large_pages_->finished()) return watch_.next_check();
  return next_move_;
}

Status ModelRunner::check_now(TimePoint now) {
  RETURN_IF_ERROR(check(now));
  return watch_.check_files_now(now);
}

Status ModelRunner::poll_stream() { return stream_ ? stream_->poll() : Status(); }

// No step is running, or none that reads weights: devices that map files run a step as a whole. A
// call before its time, without a step, may come with a request, which does not wait then.
void ModelRunner::move_weights(TimePoint now) {
  if (!large_pages_ || large_pages_->finished()) return;
  const bool stepped = submitted_ != moved_after_;
  if (!stepped && now < next_move_) return;
  moved_after_ = submitted_;
  next_move_ = now + kIdleMoves;
  // The stream goes first: it reads the files in the order of the layers. So the weights are in
  // memory when they move, and moves do not wait for the disk.
  if (stream_ && !stream_->finished()) return;
  if (stepped) {
    large_pages_->advance_after_step();
  } else {
    large_pages_->advance_while_idle();
  }
}

// A snapshot whose weights were made again is of no concern any more.
Status ModelRunner::check_pages() {
  if (stream_ && stream_->remade()) watch_.remove(stream_->section_begin());
  return watch_.check_pages();
}

}  // namespace sluice
