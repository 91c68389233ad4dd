// WorkerPool: a few threads for work that is too long for the event loop: parsing bodies, rendering
// templates, tokenizing, writing long answers. Jobs start in order of submission, except that long
// jobs leave one thread free for short jobs, so that long jobs do not hold up short ones. A job
// gets the index of its worker (0 to threads - 1), so that callers can keep working memory per
// worker. Jobs must not throw.
// Owner: the command. Threads: submit(), try_submit(), drop() and pending() from any; the rest from
// the owner's.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/urgent_work.h"

namespace sluice {

enum class JobLength : std::uint8_t { kShort, kLong };

class WorkerPool {
 public:
  using Job = std::function<void(int worker)>;

  // `max_pending`: jobs that may wait. `urgent` counts short jobs until they have run; null = they
  // are not counted. REQUIRES: it outlives the pool.
  WorkerPool(int threads, std::size_t max_pending, UrgentWork* urgent = nullptr);
  ~WorkerPool();  // stops
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  using Ticket = std::uint64_t;  // never 0

  // Queues a job. Returns nothing and does nothing if max_pending jobs wait, and after stop().
  std::optional<Ticket> try_submit(Job job, JobLength length = JobLength::kShort);
  // The same without the limit, for work that an accepted call still needs.
  std::optional<Ticket> submit(Job job, JobLength length = JobLength::kShort);
  // Removes a job that waits. False: it runs, or has run.
  bool drop(Ticket ticket);
  std::size_t pending() const;

  // Drops the jobs that wait, ends the threads, and waits for them. A second call does nothing.
  void stop();

 private:
  struct MarkedJob {
    Job job;
    UrgentWork::Mark mark;
    JobLength length = JobLength::kShort;
    Ticket ticket = 0;
  };
  using Jobs = std::deque<MarkedJob>;

  std::optional<Ticket> enqueue(Job job, JobLength length, std::size_t most);
  void run(int worker);
  // REQUIRES: the caller holds `mutex_`.
  Jobs::iterator first_that_may_run();

  const std::size_t max_pending_;
  const int max_long_;  // long jobs that may run at once
  UrgentWork* const urgent_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Jobs jobs_;
  int running_long_ = 0;
  Ticket last_ticket_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace sluice
