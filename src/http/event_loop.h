// EventLoop: one thread that waits for sockets, timers and signals and runs short tasks. All
// connections of a server and its bookkeeping live on this thread, so they need no locks.
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

class SignalWatch;

class EventLoop {
 public:
  // `urgent` counts posted tasks until they have run; null = they are not counted. REQUIRES: it
  // outlives the loop.
  explicit EventLoop(UrgentWork* urgent = nullptr);
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Runs tasks on the calling thread until stop().
  void run();
  // Makes run() return after the current task. Waiting tasks are dropped with the loop.
  void stop();

  // Queues a task after those already queued.
  void post(std::function<void()> task);
  // Runs a task once, `delay` from now.
  void after(Duration delay, std::function<void()> task);
  // Runs `task` once, with the signal's number, when the process gets the first of these signals. A
  // second one ends the process at once with exit status 128 plus its number: the signal handler
  // does that itself, so it works while the loop is blocked, stopped or never ran. The destructor
  // restores the former handlers. REQUIRES: no other loop of the process watches signals.
  void on_first_signal(std::initializer_list<int> signals, std::function<void(int)> task);

  // Runs `task` each time the process gets `signal`, once for those that come together. REQUIRES:
  // no other part of the process handles it.
  void on_each_signal(int signal, std::function<void()> task);

  // For the other files of src/http.
  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
  std::unique_ptr<SignalWatch> signals_;
  UrgentWork* const urgent_;
};

}  // namespace sluice::http
