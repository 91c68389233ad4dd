// Executors that wrap another one, for tests. One stops steps at a gate that the test opens, one
// calls the test while a step is being committed, one fails after some steps. They compose.
// Threads: any thread may use the gate; the executors allow what the wrapped executor allows.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "engine/device_counters.h"
#include "request/request.h"
#include "scheduler/executor.h"

namespace sluice {

// Limits how many steps may start, and records which requests ran. Initially open.
class Gate {
 public:
  void open() { set(kAny); }
  void close() { set(0); }
  // Lets `steps` more steps start. REQUIRES: closed.
  void let(int steps) {
    {
      const std::lock_guard lock(mutex_);
      allowed_ += steps;
    }
    changed_.notify_all();
  }

  // Blocks until the step may start.
  void pass(const BatchPlan& plan) {
    std::unique_lock lock(mutex_);
    ++arrived_;
    for (const SlotAssignment& a : plan.assignments) ran_.insert(a.sequence->request->id);
    changed_.notify_all();
    changed_.wait(lock, [&] { return allowed_ != 0; });
    if (allowed_ > 0) --allowed_;
  }

  // True once `count` steps wait or have passed; false after a minute.
  bool await_arrivals(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(1), [&] { return arrived_ >= count; });
  }
  int arrived() const {
    const std::lock_guard lock(mutex_);
    return arrived_;
  }
  bool ran(RequestId id) const {
    const std::lock_guard lock(mutex_);
    return ran_.contains(id);
  }

 private:
  static constexpr int kAny = -1;

  void set(int allowed) {
    {
      const std::lock_guard lock(mutex_);
      allowed_ = allowed;
    }
    changed_.notify_all();
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int allowed_ = kAny;
  int arrived_ = 0;
  std::set<RequestId> ran_;
};

// Forwards every call.
class ForwardingExecutor : public Executor {
 public:
  explicit ForwardingExecutor(std::unique_ptr<Executor> inner) : inner_(std::move(inner)) {}
  int max_in_flight() const override { return inner_->max_in_flight(); }
  Status submit(const BatchPlan& plan) override { return inner_->submit(plan); }
  Status collect(StepResult& out) override { return inner_->collect(out); }
  Status poll(std::vector<TransferResult>& completed) override { return inner_->poll(completed); }
  Status wait_for_transfer(Duration at_most) override { return inner_->wait_for_transfer(at_most); }
  std::int32_t kv_backed_blocks() const override { return inner_->kv_backed_blocks(); }
  bool kv_growth_failed() const override { return inner_->kv_growth_failed(); }
  std::int32_t kv_held_blocks() const override { return inner_->kv_held_blocks(); }
  void take_lost_pages(std::vector<PagedBlock>& lost) override { inner_->take_lost_pages(lost); }
  void take_page_levels(std::vector<PageLevel>& changes) override {
    inner_->take_page_levels(changes);
  }
  bool tier_accepts_saves() const override { return inner_->tier_accepts_saves(); }
  void end_stream(SequenceId sequence) override { inner_->end_stream(sequence); }
  Status flush_tier(Duration at_most) override { return inner_->flush_tier(at_most); }
  Status check(TimePoint now) override { return inner_->check(now); }
  Status check_now(TimePoint now) override { return inner_->check_now(now); }
  std::optional<TimePoint> next_check() const override { return inner_->next_check(); }

 private:
  std::unique_ptr<Executor> inner_;
};

class GatedExecutor final : public ForwardingExecutor {
 public:
  GatedExecutor(std::unique_ptr<Executor> inner, Gate& gate)
      : ForwardingExecutor(std::move(inner)), gate_(gate) {}
  Status submit(const BatchPlan& plan) override {
    gate_.pass(plan);
    return ForwardingExecutor::submit(plan);
  }

 private:
  Gate& gate_;
};

class CommitHookExecutor final : public ForwardingExecutor, public DeviceMeter {
 public:
  // `hook` runs on the engine's thread, after each collect() and before its tokens are reported:
  // when the engine reads the counters. REQUIRES: `meter` lives as long as `inner`.
  CommitHookExecutor(std::unique_ptr<Executor> inner, const DeviceMeter& meter,
                     std::function<void()> hook)
      : ForwardingExecutor(std::move(inner)), meter_(meter), hook_(std::move(hook)) {}
  DeviceTime device_time() const override { return meter_.device_time(); }
  ComputedWork computed_work() const override {
    hook_();
    return meter_.computed_work();
  }

 private:
  const DeviceMeter& meter_;
  std::function<void()> hook_;
};

class FailingExecutor final : public ForwardingExecutor {
 public:
  FailingExecutor(std::unique_ptr<Executor> inner, int good_steps)
      : ForwardingExecutor(std::move(inner)), good_steps_(good_steps) {}
  Status submit(const BatchPlan& plan) override {
    if (good_steps_-- <= 0) return internal_error("the device caught fire");
    return ForwardingExecutor::submit(plan);
  }

 private:
  int good_steps_;
};

}  // namespace sluice
