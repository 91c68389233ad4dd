#include "base/job_thread.h"

#include <utility>

namespace sluice {

JobThread::JobThread() : thread_([this] { run(); }) {}

JobThread::~JobThread() { stop(); }

void JobThread::add(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  news_.notify_all();
}

void JobThread::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  news_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void JobThread::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    news_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    job = nullptr;  // what it holds ends without the lock
    lock.lock();
  }
}

}  // namespace sluice
