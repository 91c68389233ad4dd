#include "offload/move_queue.h"

#include <utility>

namespace sluice {

MoveQueue::MoveQueue(Run run, int save_rests, const SavePace::Clocks& clocks)
    : run_(std::move(run)), pace_(save_rests, clocks), thread_([this] { run_all(); }) {}

MoveQueue::~MoveQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  thread_.join();
}

void MoveQueue::run_all() {
  std::unique_lock lock(mutex_);
  for (;;) {
    pace_.wait(
        work_, lock, [&] { return stopping_ || !loads_.empty(); }, [&] { return saves_.size(); });
    if (stopping_) return;
    const bool saves = loads_.empty();
    std::deque<QueuedMove>& queue = saves ? saves_ : loads_;
    const QueuedMove move = queue.front();
    queue.pop_front();
    SavePace::Save turn;
    if (saves) turn = pace_.begin(saves_.size());
    busy_ = true;
    lock.unlock();
    Status status = run_(move);
    lock.lock();
    busy_ = false;
    if (saves) pace_.end(turn);
    ended_.push_back({move.id, std::move(status)});
    done_.notify_all();
  }
}

void MoveQueue::add(const QueuedMove& move) {
  const std::lock_guard lock(mutex_);
  if (move.source == nullptr) {
    loads_.push_back(move);
    work_.notify_one();
    return;
  }
  saves_.push_back(move);
  const bool hurries = move.page.haste != SaveHaste::kEasy && pace_.hurry();
  if (hurries || pace_.wakes(saves_.size())) work_.notify_one();
}

void MoveQueue::poll(std::vector<TierMove>& ended) {
  const std::lock_guard lock(mutex_);
  for (TierMove& move : ended_) ended.push_back(std::move(move));
  ended_.clear();
}

void MoveQueue::wait(Duration at_most) {
  std::unique_lock lock(mutex_);
  done_.wait_for(lock, at_most, [&] { return !ended_.empty(); });
}

Status MoveQueue::flush(Duration at_most) {
  std::unique_lock lock(mutex_);
  if (pace_.hurry()) work_.notify_one();
  const bool idle =
      done_.wait_for(lock, at_most, [&] { return loads_.empty() && saves_.empty() && !busy_; });
  if (idle) return {};
  return Error{ErrorCode::kDeadlineExceeded, "saves are still under way"};
}

}  // namespace sluice
