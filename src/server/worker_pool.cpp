#include "server/worker_pool.h"

#include <utility>

namespace sluice {

WorkerPool::WorkerPool(int threads, std::size_t max_pending, UrgentWork* urgent)
    : max_pending_(max_pending), urgent_(urgent) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this, i] { run(i); });
}

WorkerPool::~WorkerPool() { stop(); }

bool WorkerPool::try_submit(Job job) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || jobs_.size() >= max_pending_) return false;
    jobs_.push_back({std::move(job), UrgentWork::Mark(urgent_)});
  }
  wake_.notify_one();
  return true;
}

std::size_t WorkerPool::pending() const {
  const std::lock_guard lock(mutex_);
  return jobs_.size();
}

void WorkerPool::stop() {
  std::deque<MarkedJob> dropped;
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

void WorkerPool::run(int worker) {
  while (true) {
    MarkedJob next;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      next = std::move(jobs_.front());
      jobs_.pop_front();
    }
    next.job(worker);
  }
}

}  // namespace sluice
