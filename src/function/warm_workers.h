// WarmWorkers: function processes that no tenant has yet. A worker's sandbox is built, the backbone
// mapped and touched, graphs captured. take() gives a worker away for good, to one
// tenant and adapter (ProcessEngineLoop::specialize); it never comes back. Another one starts in
// its place, kRefillPause later, so that its start does not take cores from the first answer.
// Owner: the model. Threads: any; one lock. start() waits, and clear() waits for the processes'
// end.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "function/process_engine_loop.h"

namespace sluice {

class WarmWorkers {
 public:
  static constexpr Duration kRefillPause = std::chrono::milliseconds(200);

  // Makes and starts a worker whose process starts after `pause`.
  using Make =
      std::function<std::unique_ptr<ProcessEngineLoop>(Duration pause, std::function<void()> wake)>;

  WarmWorkers(std::int32_t count, Make make) : make_(std::move(make)), count_(count) {}
  ~WarmWorkers() { clear(); }
  WarmWorkers(const WarmWorkers&) = delete;
  WarmWorkers& operator=(const WarmWorkers&) = delete;

  // Starts the workers, and waits until the first one is ready. The error is why it has failed:
  // then no function can run here. With a count of 0 one worker starts, and ends again. Also after
  // clear().
  Status start();
  // The worker that was ready first; null if none is ready.
  std::unique_ptr<ProcessEngineLoop> take();
  // Ends all. From now on take() gives none.
  void clear();

  // So many from now on. Ends those beyond, and waits for their end. Also after clear(), without a
  // wait for the new ones. REQUIRES: start() has succeeded once.
  void keep(std::int32_t count);

  std::int32_t count_ready() const;
  // The memory of the largest worker that is ready, as FunctionUse has it; 0: none is ready.
  std::int64_t largest_bytes() const;

 private:
  // Outlives this if a worker's thread still wakes it.
  struct News {
    std::mutex mutex;
    std::condition_variable changed;
  };

  std::unique_ptr<ProcessEngineLoop> make_worker(Duration pause) const;
  void fill(Duration pause);

  const Make make_;
  const std::shared_ptr<News> news_ = std::make_shared<News>();  // shared with the workers' threads
  mutable std::mutex mutex_;
  // Guarded by `mutex_`.
  bool started_ = false;
  std::int32_t count_ = 0;
  std::vector<std::unique_ptr<ProcessEngineLoop>> workers_;  // in the order of their start
};

}  // namespace sluice
