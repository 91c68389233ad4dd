// JobThread: a thread that runs jobs one after the other, in the order in which they were added.
// Owner: any. Threads: add() from any; stop() from the owner's.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace sluice {

class JobThread {
 public:
  JobThread();
  ~JobThread();  // stops
  JobThread(const JobThread&) = delete;
  JobThread& operator=(const JobThread&) = delete;

  // REQUIRES: stop() was not called.
  void add(std::function<void()> job);
  // Waits until all jobs are done. A second call does nothing.
  void stop();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<std::function<void()>> jobs_;  // guarded by `mutex_`
  bool stopping_ = false;                   // guarded by `mutex_`
  std::thread thread_;                      // last: it uses all of the above
};

}  // namespace sluice
