// EventLoop: one thread that waits for sockets, timers and signals and runs short tasks. All of a
// server's connections and all of the front's bookkeeping live on it, so none of that locks.
// Tasks must not block and must not throw.
// Owner: the command. Threads: post() and stop() from any; everything else from the loop's thread
// or before run().
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>

#include "base/clock.h"
#include "base/urgent_work.h"

namespace sluice::http {

class EventLoop {
 public:
  // `urgent`: where posted tasks are marked until they have run; null = nowhere. REQUIRES: it
  // outlives the loop.
  explicit EventLoop(UrgentWork* urgent = nullptr);
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Runs tasks on the calling thread until stop().
  void run();
  // run() returns after the task it is in; tasks that wait are dropped with the loop.
  void stop();

  // Queues a task behind those already queued.
  void post(std::function<void()> task);
  // Runs a task once, `delay` from now.
  void after(Duration delay, std::function<void()> task);
  // Runs `task` with the signal's number each time one of the signals comes to the process.
  void on_signals(std::initializer_list<int> signals, std::function<void(int)> task);

  // For the other files of src/http.
  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
  UrgentWork* const urgent_;
};

}  // namespace sluice::http
