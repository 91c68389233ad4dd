#include "function/warm_workers.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

bool is_ready(const std::unique_ptr<ProcessEngineLoop>& worker) {
  return worker->ready_process().has_value();
}

// A loop does not wake for a failure if it has woken before.
constexpr std::chrono::milliseconds kLongestLook{20};

}  // namespace

std::unique_ptr<ProcessEngineLoop> WarmWorkers::make_worker(Duration pause) const {
  return make_(pause, [news = news_] {
    const std::lock_guard lock(news->mutex);
    news->changed.notify_all();
  });
}

// With `mutex_`.
void WarmWorkers::fill(Duration pause) {
  while (workers_.size() < static_cast<std::size_t>(count_)) {
    workers_.push_back(make_worker(pause));
  }
}

Status WarmWorkers::start() {
  // Not among the others yet, so that none takes it meanwhile.
  std::unique_ptr<ProcessEngineLoop> first = make_worker(Duration(0));
  {
    std::unique_lock lock(news_->mutex);
    while (!first->ready_process() && first->state() != EngineState::kFailed) {
      news_->changed.wait_for(lock, kLongestLook);
    }
  }
  if (first->state() == EngineState::kFailed) {
    const auto failure = first->failure();
    return failure ? *failure : internal_error("a function has failed without a reason");
  }
  const std::lock_guard lock(mutex_);
  started_ = true;
  if (count_ > 0) workers_.push_back(std::move(first));
  fill(Duration(0));
  return {};
}

std::unique_ptr<ProcessEngineLoop> WarmWorkers::take() {
  const std::lock_guard lock(mutex_);
  if (!started_) return nullptr;
  std::erase_if(workers_, [](const auto& worker) { return worker->failure().has_value(); });
  std::unique_ptr<ProcessEngineLoop> taken;
  if (const auto found = std::ranges::find_if(workers_, is_ready); found != workers_.end()) {
    taken = std::move(*found);
    workers_.erase(found);
  }
  fill(kRefillPause);
  return taken;
}

void WarmWorkers::clear() {
  std::vector<std::unique_ptr<ProcessEngineLoop>> ended;
  const std::lock_guard lock(mutex_);
  started_ = false;
  ended.swap(workers_);
}

void WarmWorkers::keep(std::int32_t count) {
  std::vector<std::unique_ptr<ProcessEngineLoop>> ended;
  const std::lock_guard lock(mutex_);
  started_ = true;
  count_ = count;
  while (workers_.size() > static_cast<std::size_t>(count)) {
    ended.push_back(std::move(workers_.back()));
    workers_.pop_back();
  }
  fill(Duration(0));
}

std::int64_t WarmWorkers::largest_bytes() const {
  const std::lock_guard lock(mutex_);
  std::int64_t largest = 0;
  for (const auto& worker : workers_) largest = std::max(largest, worker->use().own_bytes);
  return largest;
}

std::int32_t WarmWorkers::count_ready() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int32_t>(std::ranges::count_if(workers_, is_ready));
}

}  // namespace sluice
