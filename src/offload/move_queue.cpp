#include "offload/move_queue.h"

#include <utility>

namespace sluice {

MoveQueue::MoveQueue(Run run) : run_(std::move(run)), thread_([this] { run_all(); }) {}

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
    work_.wait(lock, [&] { return stopping_ || !loads_.empty() || !saves_.empty(); });
    if (stopping_) return;
    std::deque<QueuedMove>& queue = loads_.empty() ? saves_ : loads_;
    const QueuedMove move = queue.front();
    queue.pop_front();
    busy_ = true;
    lock.unlock();
    Status status = run_(move);
    lock.lock();
    busy_ = false;
    ended_.push_back({move.id, std::move(status)});
    done_.notify_all();
  }
}

void MoveQueue::add(const QueuedMove& move) {
  const std::lock_guard lock(mutex_);
  (move.source != nullptr ? saves_ : loads_).push_back(move);
  work_.notify_one();
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
  const bool idle =
      done_.wait_for(lock, at_most, [&] { return loads_.empty() && saves_.empty() && !busy_; });
  if (idle) return {};
  return Error{ErrorCode::kDeadlineExceeded, "saves are still under way"};
}

}  // namespace sluice
