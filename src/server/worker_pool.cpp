#include "server/worker_pool.h"

#include <algorithm>
#include <utility>

namespace sluice {

WorkerPool::WorkerPool(int threads, std::size_t max_pending, UrgentWork* urgent)
    : max_pending_(max_pending), max_long_(std::max(1, threads - 1)), urgent_(urgent) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this, i] { run(i); });
}

WorkerPool::~WorkerPool() { stop(); }

bool WorkerPool::try_submit(Job job, JobLength length) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || jobs_.size() >= max_pending_) return false;
    UrgentWork* const marked_in = length == JobLength::kShort ? urgent_ : nullptr;
    jobs_.push_back({std::move(job), UrgentWork::Mark(marked_in), length});
  }
  wake_.notify_one();
  return true;
}

std::size_t WorkerPool::pending() const {
  const std::lock_guard lock(mutex_);
  return jobs_.size();
}

void WorkerPool::stop() {
  Jobs dropped;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    dropped.swap(jobs_);
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

WorkerPool::Jobs::iterator WorkerPool::first_that_may_run() {
  if (running_long_ < max_long_) return jobs_.begin();
  return std::find_if(jobs_.begin(), jobs_.end(),
                      [](const MarkedJob& job) { return job.length == JobLength::kShort; });
}

void WorkerPool::run(int worker) {
  bool ran_long = false;
  while (true) {
    MarkedJob next;
    {
      std::unique_lock lock(mutex_);
      if (ran_long) --running_long_;
      auto found = jobs_.end();
      wake_.wait(lock, [&] {
        found = first_that_may_run();
        return stopping_ || found != jobs_.end();
      });
      if (stopping_) return;
      next = std::move(*found);
      jobs_.erase(found);
      ran_long = next.length == JobLength::kLong;
      if (ran_long) ++running_long_;
    }
    next.job(worker);
  }
}

}  // namespace sluice
