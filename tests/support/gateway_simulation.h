// A gateway on virtual time for tests: one host with devices, functions on shared backbones, random
// calls, loads and deaths, driven by the real policies of src/serverless. After every tick it
// checks that memory is within its budget, that nothing in use has gone, that no request waits
// beyond its SLO, that every request ends once, and that the bill is the whole machine. A broken
// rule aborts. The same options give the same run.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "serverless/arrival_rate.h"
#include "serverless/artifact.h"
#include "serverless/batching.h"
#include "serverless/instance_scaler.h"
#include "serverless/offload_policy.h"
#include "serverless/preload_policy.h"
#include "serverless/usage_meter.h"

namespace sluice::test {

struct GatewayWorld {
  std::uint64_t seed = 0;
  std::int32_t devices = 2;
  std::int32_t backbones = 2;
  std::int32_t functions = 8;
  std::int64_t device_bytes = 400;  // a backbone has 100 to 200, an adapter 5 to 30
  std::int64_t host_bytes = 300;
  double calls_per_second = 4;  // of all functions
  std::int32_t seconds = 60;    // of calls; then it runs until nothing is left
  double deaths_per_second = 0.1;
  bool preload = true;
  Batching mode = Batching::kWorkConserving;
};

struct GatewayReport {
  std::uint64_t digest = 0;  // of all decisions
  std::int64_t calls = 0;
  std::int64_t answered = 0;
  std::int64_t late = 0;     // refused: they would miss their SLO
  std::int64_t crowded = 0;  // refused: the queue of a cold function was full
  std::int64_t failed = 0;   // their instance died
  std::int64_t loads = 0;    // by pre-loading
  std::int64_t offloads = 0;
  std::int64_t starts = 0;
  double p50_ms = 0;  // TTFT of answered calls
  double p99_ms = 0;
};

class GatewaySimulation {
 public:
  explicit GatewaySimulation(const GatewayWorld& world);
  GatewayReport run();

 private:
  struct Function {
    std::int32_t backbone = 0;
    Duration slo{0};
    double rate = 0;  // calls per second while on
    bool on = true;
    Arrivals arrivals;
    InstanceScaler scaler;
    std::vector<WaitingRequest> queue;
    std::int32_t running = 0;  // requests in turns
  };
  struct Instance {
    std::int32_t function = 0;
    std::int32_t device = 0;
    TimePoint ready_at;
    bool has_turn = false;
  };
  struct Turn {
    std::int32_t instance = -1;  // index in instances_; -1: free
    std::vector<WaitingRequest> requests;
    TimePoint ends_at;
    std::int64_t kv_bytes = 0;
  };
  struct Loaded {
    bool present = false;
    std::int32_t users = 0;             // instances, and loads of those that need it
    std::optional<TimePoint> ready_at;  // while it loads
  };

  void make_world();
  void tick(bool calls);
  void add_calls();
  void finish_loads();
  void finish_turns();
  void kill_one();
  void scale();
  void scale_function(std::int32_t f);
  bool start_instance(std::int32_t f);
  void stop_idle_instances(std::int32_t f, std::int32_t count);
  void remove_instance(std::size_t index);
  void dispatch();
  bool begin_turn(std::int32_t f, std::int32_t device, const BatchDispatch& dispatch);
  void preload();
  bool make_room(std::int32_t memory, std::int64_t bytes);
  void load(std::int32_t placement);
  void drop(std::int32_t placement);
  void use(std::int32_t placement, std::int32_t change);
  std::vector<double> artifact_rates() const;
  std::int64_t free_bytes(std::int32_t memory) const;
  TimePoint ready_time(std::int32_t placement) const;
  std::array<std::int32_t, 3> needs_of_instance(std::int32_t f, std::int32_t device) const;
  std::int32_t instance_for(std::int32_t f) const;
  void meter();
  void check() const;
  void check_bill();
  void note(std::uint64_t value);

  GatewayWorld world_;
  SplitMix64 random_;
  TimePoint now_;
  std::int64_t ticks_ = 0;
  std::vector<Function> functions_;
  std::vector<Instance> instances_;
  std::vector<Turn> turns_;  // of each device
  Artifacts artifacts_;
  std::int32_t worker_ = 0;                             // placement
  std::vector<std::int32_t> backbone_on_host_;          // placements, by backbone
  std::vector<std::vector<std::int32_t>> backbone_on_;  // by backbone, device
  std::vector<std::vector<std::int32_t>> adapter_on_;   // by function, device
  std::vector<Loaded> loaded_;                          // of each placement
  std::vector<std::int64_t> capacity_;                  // of each memory; 0 is the host
  std::optional<PreloadPolicy> preload_policy_;
  OffloadPolicy offload_policy_;
  UsageMeter meter_;
  std::vector<std::vector<std::int32_t>> share_of_;     // by backbone, device
  std::vector<std::vector<std::vector<bool>>> joined_;  // by function, backbone, device
  GatewayReport report_;
  std::vector<double> ttft_ms_;
};

}  // namespace sluice::test
