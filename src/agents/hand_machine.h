// For tests of agents: a machine whose functions the test drives by hand.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agents/agent_functions.h"

namespace sluice::test {

class HandLoop final : public TenantLoop {
 public:
  HandLoop(std::string model, std::string its_tenant, std::function<void()> tell)
      : backbone(std::move(model)), tenant(std::move(its_tenant)), wake(std::move(tell)) {}

  void set_tenant(const std::string& name) override { tenant = name; }
  FunctionUse use() const override { return {std::chrono::milliseconds(5), 77}; }
  void limit_kv(std::int64_t bytes) override { kv_limit = bytes; }
  FunctionKv kv() const override { return {.limit = kv_limit, .held = kv_held}; }
  Status submit(Request request) override {
    if (refuses) return resource_exhausted("full");
    requests.push_back(std::move(request));
    return {};
  }
  void cancel(RequestId id) override { cancelled.push_back(id); }
  void end_choice(RequestId, std::int32_t, FinishReason) override {}
  void ask_progress() override {}
  void take(OutputBatch& batch) override { batch = std::exchange(pending, {}); }
  std::int32_t max_requests() const override { return 10; }
  EngineState state() const override { return now; }
  std::optional<Error> failure() const override { return reason; }
  std::int32_t unfinished_requests() const override {
    return static_cast<std::int32_t>(requests.size());
  }

  void become(EngineState state) {
    now = state;
    wake();
  }
  // The last token of a request.
  void finish(RequestId id, TimePoint time) {
    OutputEvent event;
    event.request = id;
    event.num_tokens = 1;
    event.finish_reason = FinishReason::kLength;
    event.time = time;
    pending.tokens.push_back(9);
    pending.events.push_back(event);
    wake();
  }

  const std::string backbone;
  std::string tenant;
  const std::function<void()> wake;
  std::vector<Request> requests;
  std::vector<RequestId> cancelled;
  std::int64_t kv_limit = 0;
  std::int64_t kv_held = 0;
  bool refuses = false;
  EngineState now = EngineState::kLoading;
  std::optional<Error> reason;
  OutputBatch pending;
};

// Loads, jobs and ends of processes take until the test says so.
class HandMachine final : public AgentHost {
 public:
  void load_backbone(const std::string& backbone, std::function<void(Status)> done) override {
    EXPECT_FALSE(loads.contains(backbone)) << "two loads at a time";
    loads[backbone] = std::move(done);
  }
  void unload_backbone(const std::string& backbone) override {
    for (const HandLoop* loop : alive) EXPECT_NE(loop->backbone, backbone) << "it is in use";
    unloads.push_back(backbone);
    workers.erase(backbone);
  }
  void keep_workers(const std::string& backbone, std::int32_t count) override {
    workers[backbone] = count;
  }
  std::int64_t worker_bytes(const std::string&) override { return 10; }
  void add_adapter(const std::string& backbone, const std::string& digest, std::string bytes,
                   std::function<void(Status)> done) override {
    adds.push_back([this, key = std::pair(backbone, digest), bytes = std::move(bytes),
                    done = std::move(done)] {
      if (bytes == "broken") return done(invalid_argument("a broken adapter"));
      EXPECT_TRUE(adapters.insert(key).second) << "added twice";
      done({});
    });
    if (adds_at_once) add_adapters();
  }
  void remove_adapter(const std::string& backbone, const std::string& digest) override {
    EXPECT_EQ(adapters.erase({backbone, digest}), 1U);
  }
  Result<Started> start(const std::string& backbone, const std::string& digest,
                        const std::string& tenant, std::function<void()> wake) override {
    Started started;
    auto loop = std::make_unique<HandLoop>(backbone, tenant, std::move(wake));
    last = loop.get();
    alive.insert(last);
    started.adapter = digest.empty() ? -1 : 4;
    started.vocab_size = 100;
    started.loop = std::move(loop);
    return started;
  }
  void end(std::unique_ptr<TenantLoop> loop, std::function<void()> done) override {
    alive.erase(static_cast<HandLoop*>(loop.get()));
    ends.push_back(std::move(done));
    if (ends_at_once) end_processes();
  }
  void run_aside(std::function<Status()> job, std::function<void(Status)> done) override {
    asides.push_back([job = std::move(job), done = std::move(done)] { done(job()); });
    if (asides_at_once) run_asides();
  }
  std::int64_t free_bytes() const override { return 1000; }

  void loaded(const std::string& backbone, const Status& status) {
    const auto done = std::move(loads.at(backbone));
    loads.erase(backbone);
    done(status);
  }
  void add_adapters() {
    for (const auto& add : std::exchange(adds, {})) add();
  }
  void run_asides() {
    for (const auto& aside : std::exchange(asides, {})) aside();
  }
  void end_processes() {
    for (const auto& done : std::exchange(ends, {})) done();
  }

  std::map<std::string, std::function<void(Status)>> loads;  // under way
  std::vector<std::string> unloads;
  std::map<std::string, std::int32_t> workers;
  std::set<std::pair<std::string, std::string>> adapters;  // backbone, digest
  std::vector<std::function<void()>> adds;                 // adapters that are taken into memory
  bool adds_at_once = true;
  std::vector<std::function<void()>> asides;  // jobs of other threads
  bool asides_at_once = true;
  std::set<const HandLoop*> alive;
  HandLoop* last = nullptr;
  std::vector<std::function<void()>> ends;  // processes that still end
  bool ends_at_once = true;
};

}  // namespace sluice::test
