// ThreadPool: splits a loop over a fixed set of threads; the calling thread takes part. There is
// one pool per process. The composition root creates it and passes it down by reference.
// Threads: any thread may call parallel_for. While one call runs, every other call, nested or from
// another thread, runs inline on its caller. Workers spin for tens of microseconds after a job and
// then sleep, so that an idle pool uses no CPU. Between two tasks a thread yields its core to
// urgent work (urgent_work.h). Allocation: none after construction. Tasks must not throw.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/function_ref.h"
#include "base/urgent_work.h"

namespace sluice {

// The number of CPUs this process may run on (its affinity mask), at least 1.
int available_cpus();

class ThreadPool {
 public:
  using Task = FunctionRef<void(int)>;

  // `threads` >= 1 counts the caller: 1 means no worker threads and every loop inline. If the
  // system refuses a thread, the pool logs a warning and uses the threads it has: see size().
  // `urgent`: the work that tasks yield to; null = none. REQUIRES: it outlives the pool.
  // `bound`: the ids of the CPUs that each thread may run on (ThreadPlan::bound); empty: all. The
  // caller, which is the first thread, does more than the pool's work and is not bound.
  explicit ThreadPool(int threads, const UrgentWork* urgent = nullptr,
                      std::vector<std::vector<int>> bound = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Threads that may run tasks at once, the caller included.
  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // The loops so far whose tasks were shared: each woke the workers and waited for them once.
  std::uint32_t jobs() const { return epoch_.load(std::memory_order_relaxed); }

  // Calls task(i) once for each i in [0, n_tasks), in any order, on any of the threads. Returns
  // when all tasks are done; the caller then sees their writes. For per-thread scratch memory use
  // n_tasks = size() and index the scratch by i: one thread may run several tasks.
  void parallel_for(int n_tasks, Task task);

 private:
  void start_workers(int count);
  void run_alone(int n_tasks, const Task& task);
  void run_worker(std::size_t thread);
  void bind_worker(std::size_t thread) const;
  // Returns true when the thread should yield; tasks may be left for other threads.
  bool work_on_job(YieldLimiter& yields) noexcept;
  // Blocks until the epoch differs from `seen`; returns the new one.
  std::uint32_t wait_for_job(std::uint32_t seen) const;
  void wake_workers(int count);
  void wait_for_workers();

  const UrgentWork* const urgent_;
  const std::vector<std::vector<int>> bound_;
  YieldLimiter callers_yields_;

  // The current job. Written by the caller only while no worker is inside (active_ == 0) and
  // open_ is false.
  const Task* task_ = nullptr;
  int n_tasks_ = 0;
  std::atomic<bool> open_{false};
  std::atomic<bool> stop_{false};
  std::atomic<bool> busy_{false};  // a parallel_for owns the pool

  // Each on its own cache line, because different threads write them at a high rate.
  alignas(64) std::atomic<int> next_{0};             // the next task to hand out
  alignas(64) std::atomic<std::uint32_t> epoch_{0};  // +1 per job; workers sleep on it
  alignas(64) std::atomic<int> active_{0};           // workers inside a job; the caller waits on it
  std::vector<std::thread> workers_;
};

}  // namespace sluice
