// For tests of the gateway's driver: instances that the test drives by hand, a host that makes
// them, usage that is only counted, and a fixture with a driver on them.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gateway/function_loops.h"

namespace sluice::test {

using std::chrono::seconds;

// An instance that the test drives by hand.
class HandInstance final : public TenantLoop {
 public:
  HandInstance(std::int32_t own_adapter, std::string owner, std::set<HandInstance*>& alive)
      : adapter(own_adapter), tenant(std::move(owner)), alive_(alive) {
    alive_.insert(this);
  }
  ~HandInstance() override { alive_.erase(this); }

  void set_tenant(const std::string& name) override { tenant = name; }
  FunctionUse use() const override { return used; }
  void limit_kv(std::int64_t bytes) override { memory.limit = bytes; }
  FunctionKv kv() const override { return memory; }
  bool is_lost() const override { return lost; }
  Status submit(Request request) override {
    EXPECT_EQ(request.adapter, adapter);
    EXPECT_EQ(request.client_key, tenant);
    requests.push_back(request.id);
    last_goal = request.ttft_goal;
    return {};
  }
  void cancel(RequestId id) override { cancelled.push_back(id); }
  void end_choice(RequestId /*id*/, std::int32_t /*choice*/, FinishReason /*reason*/) override {}
  void ask_progress() override {}
  void take(OutputBatch& batch) override {
    batch.clear();
    std::swap(batch, pending_);
    batch.gauges.totals.steps = steps;
  }
  std::int32_t max_requests() const override { return 100; }
  EngineState state() const override { return now; }
  std::optional<Error> failure() const override { return reason; }
  std::int32_t unfinished_requests() const override {
    return static_cast<std::int32_t>(requests.size());
  }

  void finish(RequestId id, TimePoint time = {}) {
    ASSERT_EQ(std::erase(requests, id), 1U);
    OutputEvent event;
    event.request = id;
    event.finish_reason = FinishReason::kLength;
    event.first_token = static_cast<std::uint32_t>(pending_.tokens.size());
    event.num_tokens = 1;
    event.time = time;
    pending_.tokens.push_back(7);
    pending_.events.push_back(event);
  }
  // One token of a request that goes on.
  void give_token(RequestId id, TimePoint time) {
    OutputEvent event;
    event.request = id;
    event.first_token = static_cast<std::uint32_t>(pending_.tokens.size());
    event.num_tokens = 1;
    event.time = time;
    pending_.tokens.push_back(7);
    pending_.events.push_back(event);
  }
  // Its machine is gone: its calls end. It may still run there until fence().
  void lose() {
    lost = true;
    now = EngineState::kLoading;
    for (const RequestId id : std::exchange(requests, {})) {
      OutputEvent event;
      event.request = id;
      event.finish_reason = FinishReason::kError;
      pending_.events.push_back(event);
    }
  }
  void fence() { now = EngineState::kFailed; }
  void fail(Error error) {
    now = EngineState::kFailed;
    reason = std::move(error);
  }

  const std::int32_t adapter;
  std::string tenant;
  std::vector<RequestId> requests;
  std::vector<RequestId> cancelled;
  std::optional<Duration> last_goal;  // of the newest request
  EngineState now = EngineState::kReady;
  std::optional<Error> reason;
  std::int64_t steps = 0;
  FunctionUse used;
  FunctionKv memory;
  std::int32_t machine = 0;
  bool lost = false;

 private:
  std::set<HandInstance*>& alive_;
  OutputBatch pending_;
};

class HandHost final : public InstanceHost {
 public:
  void load_backbone(std::int32_t backbone) override { loads.push_back(backbone); }
  void unload_backbone(std::int32_t backbone) override { unloads.push_back(backbone); }
  void keep_workers(std::int32_t backbone, bool keep) override { workers[backbone] = keep; }
  std::int64_t worker_bytes(std::int32_t /*backbone*/) override { return bytes_of_workers; }
  std::optional<AdapterState> adapter(std::int32_t function) const override {
    const auto found = adapters.find(function);
    if (found == adapters.end()) return std::nullopt;
    return found->second;
  }
  void load_adapter(std::int32_t function) override {
    ++adapter_loads;
    adapters[function].is_loaded = loads_adapters;
  }
  void unload_adapter(std::int32_t function) override { adapters[function].is_loaded = false; }
  std::unique_ptr<TenantLoop> start_instance(std::int32_t machine, std::int32_t /*backbone*/,
                                             std::int32_t adapter,
                                             const std::string& tenant) override {
    auto made = std::make_unique<HandInstance>(adapter, tenant, alive);
    made->machine = machine;
    made->now = first_state;
    last = made.get();
    ++started;
    return made;
  }
  void end_instance(std::unique_ptr<TenantLoop> instance) override { instance.reset(); }
  std::int64_t ending_kv_bytes() const override { return ending_kv; }
  std::vector<RemoteMachine> machines() const override { return others; }

  std::optional<Duration> adapter_copy(std::int32_t machine, std::int32_t /*backbone*/,
                                       std::int32_t function) const override {
    const auto found = copies.find({machine, function});
    if (found == copies.end()) return std::nullopt;
    return found->second;
  }
  void plan_machine(std::int32_t machine, const std::vector<RemoteHolding>& plan) override {
    plans[machine] = plan;
  }

  std::set<HandInstance*> alive;
  HandInstance* last = nullptr;
  int started = 0;
  EngineState first_state = EngineState::kReady;
  std::vector<std::int32_t> loads;
  std::int64_t free_bytes() const override { return free; }

  std::vector<std::int32_t> unloads;
  std::map<std::int32_t, bool> workers;  // by backbone
  std::int64_t bytes_of_workers = 0;
  std::map<std::int32_t, AdapterState> adapters;  // by function
  bool loads_adapters = true;
  int adapter_loads = 0;
  std::vector<RemoteMachine> others;
  std::map<std::pair<std::int32_t, std::int32_t>, Duration> copies;  // by machine and function
  std::map<std::int32_t, std::vector<RemoteHolding>> plans;          // the last one, by machine
  std::int64_t free = 1'000'000;
  std::int64_t ending_kv = 0;
};

class CountedUsage final : public UsageSink {
 public:
  struct Function {
    std::int64_t requests = 0;
    std::int64_t prompt_tokens = 0;
    std::int64_t output_tokens = 0;
    bool active = false;
    FunctionSample last;
    Duration turn_time{0};
  };
  void set_backbone_bytes(std::int32_t backbone, std::int64_t bytes) override {
    backbones[backbone] = bytes;
  }
  void count_request(std::int32_t function, std::int64_t prompt_tokens) override {
    ++of[function].requests;
    of[function].prompt_tokens += prompt_tokens;
  }
  void count_output(std::int32_t function, std::int64_t tokens) override {
    of[function].output_tokens += tokens;
  }
  void set_active(std::int32_t function, bool active) override {
    EXPECT_NE(of[function].active, active);
    of[function].active = active;
  }
  void sample(std::int32_t function, const FunctionSample& sample) override {
    of[function].last = sample;
    of[function].turn_time += sample.turn_time;
  }

  std::map<std::int32_t, Function> of;
  std::map<std::int32_t, std::int64_t> backbones;
};

class FunctionLoopsTest : public testing::Test {
 protected:
  // Functions "a0", "a1", ... of tenants "t0", "t1", ..., on backbone 0.
  void start(FunctionLoops::Options options = {}, bool loaded = true, int functions = 3,
             Duration slo = Duration(0)) {
    clock_.advance(seconds(1));
    loops_.emplace(options, host_, usage_, clock_, [this] { ++wakes_; });
    loops_->add_backbone({1000, seconds(1)}, loaded);
    for (int i = 0; i < functions; ++i) {
      loops_->add_function({"t" + std::to_string(i), "a" + std::to_string(i), 0, seconds(5), slo});
    }
    loops_->set_ready();
  }

  Request request(RequestId id, std::int32_t function, std::int32_t adapter = -1) {
    Request made;
    made.id = id;
    made.function = function;
    made.adapter = adapter;
    made.client_key = "t" + std::to_string(function);
    made.arrival = clock_.now();
    made.sampling.n = 1;
    return made;
  }
  Status submit(RequestId id, std::int32_t function, std::int32_t adapter = -1) {
    return loops_->submit(request(id, function, adapter));
  }
  // Ticks each second.
  void pass(int count) {
    for (int i = 0; i < count; ++i) {
      clock_.advance(seconds(1));
      loops_->tick();
    }
  }
  OutputBatch take() {
    OutputBatch batch;
    loops_->take(batch);
    return batch;
  }

  ManualClock clock_;
  HandHost host_;
  CountedUsage usage_;
  std::optional<FunctionLoops> loops_;
  int wakes_ = 0;
};

}  // namespace sluice::test
