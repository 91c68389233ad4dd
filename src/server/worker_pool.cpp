#include "server/worker_pool.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace sluice {

WorkerPool::WorkerPool(int threads, std::size_t max_pending, UrgentWork* urgent)
    : max_pending_(max_pending), max_long_(std::max(1, threads - 1)), urgent_(urgent) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this, i] { run(i); });
}

WorkerPool::~WorkerPool() { stop(); }

std::optional<WorkerPool::Ticket> WorkerPool::try_submit(Job job, JobLength length) {
  return enqueue(std::move(job), length, max_pending_);
}

std::optional<WorkerPool::Ticket> WorkerPool::submit(Job job, JobLength length) {
  return enqueue(std::move(job), length, std::numeric_limits<std::size_t>::max());
}

std::optional<WorkerPool::Ticket> WorkerPool::enqueue(Job job, JobLength length, std::size_t most) {
  Ticket ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || jobs_.size() >= most) return std::nullopt;
    UrgentWork* const marked_in = length == JobLength::kShort ? urgent_ : nullptr;
    ticket = ++last_ticket_;
    jobs_.push_back({std::move(job), UrgentWork::Mark(marked_in), length, ticket});
  }
  wake_.notify_one();
  return ticket;
}

bool WorkerPool::drop(Ticket ticket) {
  MarkedJob dropped;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(jobs_, ticket, &MarkedJob::ticket);
  if (found == jobs_.end()) return false;
  dropped = std::move(*found);
  jobs_.erase(found);
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
