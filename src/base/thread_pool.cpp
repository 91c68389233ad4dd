#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/cpu_topology.h"
#include "base/log.h"
#include "base/spin.h"

namespace sluice {
namespace {

// Long enough to bridge the gap between two ops of one step, short enough not to matter as idle
// CPU time. Waking a sleeping thread costs 5 to 50 microseconds.
constexpr std::chrono::microseconds kSpinTime{40};

}  // namespace

int available_cpus() {
  const std::size_t allowed = allowed_cpu_ids().size();
  if (allowed > 0) return static_cast<int>(allowed);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

ThreadPool::ThreadPool(int threads, const UrgentWork* urgent, std::vector<std::vector<int>> bound)
    : urgent_(urgent), bound_(std::move(bound)), callers_yields_(urgent) {
  CHECK(threads >= 1);
  CHECK(bound_.empty() || static_cast<int>(bound_.size()) == threads);
  // Workers block all signals, so that the main thread handles them. Signals that the worker's own
  // instructions cause stay unblocked: if blocked, they end the process without a handler.
  sigset_t all;
  sigset_t old;
  sigfillset(&all);
  for (const int own : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP}) sigdelset(&all, own);
  CHECK(pthread_sigmask(SIG_SETMASK, &all, &old) == 0);
  start_workers(threads - 1);
  CHECK(pthread_sigmask(SIG_SETMASK, &old, nullptr) == 0);
}

void ThreadPool::start_workers(int count) {
  workers_.reserve(static_cast<std::size_t>(count));
  try {
    for (int i = 1; i <= count; ++i) {
      workers_.emplace_back([this, i] { run_worker(static_cast<std::size_t>(i)); });
    }
  } catch (const std::system_error& error) {
    log_warning("thread pool: started " + std::to_string(size()) + " of " +
                std::to_string(count + 1) + " threads (" + error.what() + "); steps are slower");
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::parallel_for(int n_tasks, Task task) {
  if (n_tasks <= 0) return;
  if (workers_.empty()) return run_alone(n_tasks, task);
  if (n_tasks == 1 || busy_.exchange(true, std::memory_order_acquire)) {
    for (int i = 0; i < n_tasks; ++i) task(i);
    return;
  }
  task_ = &task;
  n_tasks_ = n_tasks;
  next_.store(0, std::memory_order_relaxed);
  open_.store(true);
  epoch_.fetch_add(1);
  wake_workers(n_tasks - 1);
  while (work_on_job(callers_yields_)) sched_yield();
  // A worker enters (active_ + 1) before it reads open_; the caller closes the job before it reads
  // active_. Both are sequentially consistent: either the worker finds the job closed, or the
  // caller waits for it. All tasks have been taken by now, so all are done when active_ is 0.
  open_.store(false);
  wait_for_workers();
  busy_.store(false, std::memory_order_release);
}

void ThreadPool::run_alone(int n_tasks, const Task& task) {
  for (int i = 0; i < n_tasks; ++i) {
    task(i);
    if (callers_yields_.due()) sched_yield();
  }
}

void ThreadPool::bind_worker(std::size_t thread) const {
  if (bound_.empty() || bound_[thread].empty()) return;
  const Status bound = bind_this_thread(bound_[thread]);
  if (!bound) log_warning("thread pool: a thread is not bound: " + bound.error().message);
}

void ThreadPool::run_worker(std::size_t thread) {
  bind_worker(thread);
  // A failure is ignored: the name only helps readers of top and gdb.
  static_cast<void>(pthread_setname_np(pthread_self(), "sluice-pool"));
  YieldLimiter yields(urgent_);
  std::uint32_t seen = 0;
  bool should_yield = false;
  while (true) {
    // A yielding worker has left the job, so the caller does not wait for it.
    if (should_yield) {
      sched_yield();
    } else {
      seen = wait_for_job(seen);
    }
    if (stop_.load()) return;
    active_.fetch_add(1);
    should_yield = open_.load() && work_on_job(yields);
    if (active_.fetch_sub(1) == 1) active_.notify_one();
  }
}

bool ThreadPool::work_on_job(YieldLimiter& yields) noexcept {
  const Task& task = *task_;
  const int n_tasks = n_tasks_;
  for (int i = next_.fetch_add(1, std::memory_order_relaxed); i < n_tasks;
       i = next_.fetch_add(1, std::memory_order_relaxed)) {
    task(i);
    if (yields.due()) return true;
  }
  return false;
}

std::uint32_t ThreadPool::wait_for_job(std::uint32_t seen) const {
  const auto has_job = [&] { return epoch_.load(std::memory_order_relaxed) != seen; };
  const auto urgent = [&] { return urgent_ != nullptr && urgent_->pending(); };
  if (!spin_until(has_job, kSpinTime, urgent)) epoch_.wait(seen);
  return epoch_.load();
}

void ThreadPool::wake_workers(int count) {
  // notify costs a system call only when a worker sleeps.
  if (count >= static_cast<int>(workers_.size())) {
    epoch_.notify_all();
    return;
  }
  for (int i = 0; i < count; ++i) epoch_.notify_one();
}

void ThreadPool::wait_for_workers() {
  if (spin_until([&] { return active_.load() == 0; }, kSpinTime)) return;
  for (int inside = active_.load(); inside != 0; inside = active_.load()) active_.wait(inside);
}

}  // namespace sluice
