#include "engine/transfers.h"

#include <chrono>
#include <thread>

#include "base/log.h"

namespace sluice {

// A transfer that waits for a free mark may start late but never early: a wait of the transfer
// queue holds for everything submitted to that queue afterwards.
Status Transfers::start(const PlanTransfer& transfer, std::size_t after) {
  if (after != kNoMark) {
    RETURN_IF_ERROR(device_->wait_in(Queue::kTransfer, Queue::kCompute, after));
  }
  waiting_.push_back(transfer);
  return advance();
}

Status Transfers::submit(const PlanTransfer& transfer) {
  copies_.clear();
  if (auto listed = source_->list_copies(transfer, copies_); !listed) {
    log_warning("transfer failed: " + listed.error().message);
    ended_.push_back({transfer.id, true});
    return {};
  }
  for (const TransferCopy& copy : copies_) {
    RETURN_IF_ERROR(
        device_->copy(Queue::kTransfer, copy.kind, copy.target, copy.source, copy.bytes));
  }
  RETURN_IF_ERROR(device_->mark(Queue::kTransfer, next_mark_));
  started_.push_back({transfer.id, next_mark_});
  next_mark_ = (next_mark_ + 1) % kMarks;
  return {};
}

Status Transfers::advance() {
  while (!started_.empty()) {
    ASSIGN_OR_RETURN(const bool reached, device_->reached(Queue::kTransfer, started_.front().mark));
    if (!reached) break;
    ended_.push_back({started_.front().id, false});
    started_.pop_front();
  }
  while (!waiting_.empty() && started_.size() < kMarks) {
    const PlanTransfer next = waiting_.front();
    waiting_.pop_front();
    RETURN_IF_ERROR(submit(next));
  }
  return {};
}

Status Transfers::poll(std::vector<TransferResult>& completed) {
  RETURN_IF_ERROR(advance());
  completed.insert(completed.end(), ended_.begin(), ended_.end());
  ended_.clear();
  return {};
}

Status Transfers::wait(Duration at_most) {
  constexpr auto kPause = std::chrono::microseconds(50);  // between two polls of a copy engine
  const SystemClock clock;
  const TimePoint end = clock.now() + at_most;
  while (true) {
    RETURN_IF_ERROR(advance());
    if (!ended_.empty() || started_.empty() || clock.now() >= end) return {};
    // If the device has no copy engine, advance() itself has moved a slice.
    if (device_->traits().asynchronous) std::this_thread::sleep_for(kPause);
  }
}

}  // namespace sluice
