// FunctionLoops: the EngineLoop of a gateway. Each request names a function (Request::function),
// and each function has an instance, a function process, while it is called. This is the driver of
// the policies of src/serverless: it has the clock and the instances, tells the policies what
// happens, and carries out what they decide.
//
// A request of a function without a ready instance is held: until the backbone is loaded, until
// there is a place for an instance, and until its process is ready. A function holds at most
// ScalerOptions::queue_depth of them; submit() refuses more. A request that has waited
// Options::longest_wait for a place is refused. InstanceScaler decides when an idle instance ends.
// If all places are taken, the instance that has been idle for longest makes room for a waiting
// function. Functions get places in the order of their oldest requests. ArtifactPlanner decides
// which backbones, warm workers and adapters are in memory while no function uses them, on this
// machine and on others. Where a backbone that is called lacks memory, idle instances end, and
// backbones with such instances only leave; its requests wait while what computes has the memory,
// on this machine as on others, also if a load shows only then that it has.
//
// place_instance() decides on which machine an instance starts. The instances of a machine that is
// lost end their requests at once. Their functions start elsewhere once these instances have
// failed, which says that they run no more.
//
// plan_batches() decides when requests go to ready instances, and refuses those that will miss
// their function's SLO. Each tenant is a device to it: turns are fair between tenants, so a
// tenant's requests wait for its own others only. A few of a tenant's functions may have dispatched
// requests without a first token (Options::prefills_at_once), so that the cores never wait for the
// event loop. PrefillMeter knows the times. The SLO of a request that waited for a start counts
// from the end of the start, since a refusal would bring no client an earlier answer.
//
// Owner: the command. Threads: the event loop's only. tick() is to be called about once a second.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "function/divided_loops.h"
#include "gateway/artifact_planner.h"
#include "gateway/gateway_counts.h"
#include "gateway/gateway_state.h"
#include "gateway/instance_host.h"
#include "gateway/prefill_tracker.h"
#include "gateway/usage_sink.h"
#include "serverless/batching.h"
#include "serverless/instance_placer.h"
#include "serverless/instance_scaler.h"

namespace sluice {

// A function, as far as the driver must know it.
struct GatewayFunction {
  std::string tenant;
  std::string name;  // for messages
  std::int32_t backbone = 0;
  Duration idle{0};
  Duration ttft_slo{0};  // 0: no request is refused for it
};

class FunctionLoops final : public DividedLoops {
 public:
  struct Options {
    std::int32_t max_requests = 1024;  // of all functions together
    std::int32_t max_instances = 8;    // on this machine
    std::int32_t queue_depth = 100;    // requests of a function without a ready instance
    Duration longest_wait = std::chrono::seconds(60);
    std::int32_t seats = 0;             // requests that an instance may have; 0: no limit
    std::int32_t prefills_at_once = 2;  // functions of a tenant
  };

  // `wake`: as EngineLoop says. REQUIRES: host, usage and clock outlive it.
  FunctionLoops(const Options& options, InstanceHost& host, UsageSink& usage, const Clock& clock,
                std::function<void()> wake);
  ~FunctionLoops() override;
  FunctionLoops(const FunctionLoops&) = delete;
  FunctionLoops& operator=(const FunctionLoops&) = delete;

  // Adds a backbone, loaded or not. Backbones and functions are numbered from 0.
  std::int32_t add_backbone(const ArtifactUse& use, bool loaded);
  std::int32_t add_function(const GatewayFunction& function);
  // Changes the idle time. REQUIRES: tenant and backbone are as before.
  void change_function(std::int32_t function, const GatewayFunction& changed);
  // Memory for artifacts that no function uses; absent: all that is free.
  void set_idle_bytes(std::optional<std::int64_t> bytes) { idle_bytes_ = bytes; }
  void set_batching(Batching mode, const FixedBatch& fixed = {}) {
    batching_ = mode;
    fixed_batch_ = fixed;
  }
  // Whether artifacts are loaded before they are called.
  void set_preload(bool preload) { preload_ = preload; }
  // `call_after`: runs dispatch() after a delay; for modes that hold requests of ready
  // instances.
  void on_delay(std::function<void(Duration)> call_after) { call_after_ = std::move(call_after); }
  // Requests are taken from now on.
  void set_ready();
  // The end of InstanceHost::load_backbone(). Its error refuses the requests that wait for it.
  void backbone_loaded(std::int32_t backbone, const Status& status);
  // Another machine came, went or changed.
  void machines_changed();
  void tick();
  // Gives waiting requests to instances as far as there are backbones, places and turns.
  void dispatch();
  // Reports what all functions use until now, also between two ticks.
  void report_usage();
  // Ends all instances; nothing is taken from now on.
  void stop();

  // kResourceExhausted also when too many requests wait for the function.
  Status submit(Request request) override;
  // Loads the backbone and starts an instance, if there is a place. Nothing that computes or waits
  // is changed for it.
  void expect(std::int32_t function, std::int32_t adapter) override;
  void cancel(RequestId id) override;
  void end_choice(RequestId id, std::int32_t choice, FinishReason reason) override;
  void ask_progress() override;
  Status supports_pins() const override {
    return unsupported("a gateway has no pins; use `sluice serve`");
  }
  Status ask_pins(PinQuestion) override { return supports_pins(); }
  void take(OutputBatch& batch) override;
  std::int32_t max_requests() const override { return options_.max_requests; }
  EngineState state() const override { return state_; }
  std::optional<Error> failure() const override { return std::nullopt; }
  std::int32_t unfinished_requests() const override;
  std::vector<Kv> kv(std::int64_t& ending) const override;
  void limit_kv(std::uint64_t loop, std::int64_t bytes) override;

  std::int32_t num_instances() const { return num_instances_; }
  GatewayCounts counts() const;
  // Calls of a function since the start, and whether it has a process or a waiting call.
  std::int64_t calls(std::int32_t function) const {
    return functions_[static_cast<std::size_t>(function)].calls;
  }
  bool is_active(std::int32_t function) const { return active_.contains(function); }
  FunctionView view(std::int32_t function) const;
  BackboneView backbone_view(std::int32_t backbone) const;

  // An operator's changes. kNotFound: there is nothing to change. kUnavailable: it is in use.
  Status end_idle(std::int32_t function);
  Status load_by_hand(std::int32_t backbone);
  // For ArtifactPlanner::kHorizon only a call brings it back.
  Status unload_by_hand(std::int32_t backbone);

 private:
  enum class Load : std::uint8_t { kAbsent, kLoading, kLoaded };
  struct Backbone {
    Load load = Load::kAbsent;
    std::int32_t instances = 0;  // on this machine
    std::int64_t bytes = 0;
    TimePoint retry;       // after a failed load, or by hand: only a call loads it until then
    bool workers = false;  // warm workers are kept
  };
  // Has one adapter content: after a reload, the function's later requests get another instance.
  struct Instance {
    std::unique_ptr<TenantLoop> loop;
    std::int32_t adapter = -1;
    std::int32_t machine = 0;  // 0: this one
    std::uint64_t number = 0;  // see DividedLoops::Kv
    TimePoint last_use;
    TimePoint started;
    bool was_warm = false;              // a warm worker
    std::optional<TimePoint> ready_at;  // when that was seen
    EngineGauges gauges;
    Duration turn_time{0};       // that was reported
    std::int64_t own_bytes = 0;  // as they were reported
    bool asked = false;          // for its progress
  };
  struct Function {
    GatewayFunction spec;
    std::optional<InstanceScaler> scaler;
    std::vector<Instance> instances;
    std::deque<Request> waiting;  // oldest first
    std::int64_t calls = 0;
    Duration ended_turns{0};           // of ended instances, not yet reported
    bool active = false;               // as it was reported
    TimePoint adapter_retry;           // its adapter is not loaded before a call until then
    std::vector<WaitingRequest> view;  // of the requests that wait for the front one's instance
  };
  // The batches that plan_batches() sees, at most one of each function.
  struct DispatchView {
    std::vector<WaitingBatch> batches;
    std::vector<std::int32_t> turns;    // by device
    std::vector<std::int32_t> tenants;  // by device
  };

  Function& function_at(std::int32_t function);
  void make_scaler(Function& function);
  Instance* instance_for(Function& function, std::int32_t adapter);
  std::vector<Residency> residency() const;
  void load(std::int32_t backbone);
  // For a call: idle things leave if it does not fit. Without effect while only what runs could
  // leave.
  void load_for_call(std::int32_t backbone);
  // The idle things that leave a machine so that a load finds `missing` bytes more. None: only what
  // runs there, or is being loaded, could leave. Nothing leaves where that is no help: the load
  // shows what is wrong. `state`: all artifacts there.
  std::optional<ArtifactPlan::Set> room_for(std::int32_t machine, std::int64_t missing,
                                            ArtifactState state, bool any_loads);
  // A load for a call had no room. Whether its requests wait: what runs there has the memory.
  bool waits_for_memory(std::int32_t machine, std::int32_t backbone, const Error& error);
  bool was_just_short(std::int32_t machine, std::int32_t backbone) const;
  void unload(std::int32_t backbone);
  void unload(const ArtifactPlan::Set& set);
  // Loads and unloads artifacts that no function uses.
  void plan_artifacts();
  ArtifactState artifacts() const;
  // The function has processes on the machine, and none of them is needed.
  bool is_idle_on(std::int32_t machine, std::int32_t function) const;
  // Adds the processes that no call needs, which may end, to what is idle on a machine.
  void add_idle_instances(std::int32_t machine, ArtifactState& state) const;
  void end_idle_instances(std::int32_t machine, const std::vector<std::int32_t>& functions);
  // The artifacts of another machine. REQUIRES: `machine` is not 0.
  std::int64_t memory_for_idle(const ArtifactState& state, std::int64_t free) const;
  MachineArtifacts artifacts_of(std::int32_t machine, const RemoteMachine& remote) const;
  // Backbones on their way to another machine, which take memory that nothing new may have.
  std::int64_t coming_bytes(std::int32_t machine, const RemoteMachine& remote) const;
  void add_copies(std::int32_t machine, ArtifactState& state) const;
  bool runs_on(std::int32_t machine, std::int32_t function) const;
  void make_room_on(std::int32_t machine, std::int32_t backbone);
  std::int64_t missing_on(std::int32_t machine, std::int32_t backbone,
                          const RemoteMachine& remote) const;
  // Those other machines that could have the backbone now, by number less 1.
  std::vector<bool> rooms(std::int32_t backbone, const std::vector<RemoteMachine>& machines);
  void follow(const ArtifactPlan& plan, TimePoint now);
  std::vector<RemoteHolding> remote_plan(const RemoteMachine& remote, const ArtifactState& state,
                                         const ArtifactPlan& plan) const;
  Duration usual_start() const;
  // Loads and starts what waiting requests need.
  void start_needed();
  bool start_needed_by(std::int32_t number);
  // Where an instance can start.
  struct Place {
    std::optional<std::int32_t> machine = {};  // now
    bool loads = false;  // later: the backbone is being loaded, or waits for memory
  };
  // `make_room`: idle instances may end for it.
  Place find_place(std::int32_t backbone, bool make_room);
  std::optional<MachineOffer> free_place(std::int32_t backbone,
                                         const std::vector<RemoteMachine>& machines,
                                         const std::vector<bool>& rooms,
                                         bool can_load = true) const;
  bool lacks_room(std::int32_t backbone, const std::vector<RemoteMachine>& machines,
                  const std::vector<bool>& rooms) const;
  bool make_place(std::int32_t backbone, const std::vector<bool>& rooms);
  // `backbone`: absent: of all.
  std::int32_t instances_on(std::int32_t machine, std::optional<std::int32_t> backbone = {}) const;
  static bool is_closing(const Instance& instance, const std::vector<RemoteMachine>& machines);
  void report_backbone(std::int32_t backbone);
  // Gives requests to ready instances. False: there was nothing to give.
  bool dispatch_ready();
  DispatchView view_batches(TimePoint now);
  void add_batch(std::int32_t number, TimePoint now, DispatchView& view);
  void open_turns(DispatchView& view) const;
  void refuse_front(std::int32_t number);
  void dispatch_front(std::int32_t number, std::int32_t requests);
  void note_ready(Instance& instance);
  void note_tokens();
  static bool is_needed(const Function& function, const Instance& instance);
  void start_instance(std::int32_t number, std::int32_t adapter, std::int32_t machine);
  void end_instance(std::int32_t number, std::size_t index);
  void end_unused(std::int32_t number, TimePoint now);
  void refuse_late(Function& function, TimePoint now);
  void refuse(RequestId id, GatewayRefusal reason, Error error);
  // Refuses the requests that wait for this content of the adapter.
  void refuse_waiting(Function& function, std::int32_t adapter, const Error& error);
  void collect(std::int32_t number, Instance& instance);
  // Reports what a function uses.
  void report(std::int32_t number);
  void report_activity(std::int32_t number);
  static bool has_failed(const Instance& instance);
  static std::int32_t unfinished_of(const Function& function);

  const Options options_;
  InstanceHost& host_;
  UsageSink& usage_;
  const Clock& clock_;
  const std::function<void()> wake_;
  EngineState state_ = EngineState::kLoading;
  ArtifactPlanner planner_;
  std::optional<std::int64_t> idle_bytes_;
  std::vector<Backbone> backbones_;
  std::deque<Function> functions_;  // stable addresses
  std::set<std::int32_t> active_;   // functions with instances or waiting requests
  // By machine and backbone: until when a load that has just failed is not tried again.
  std::map<std::pair<std::int32_t, std::int32_t>, TimePoint> short_until_;
  std::int32_t num_instances_ = 0;
  std::int32_t local_instances_ = 0;
  std::uint64_t last_number_ = 0;  // of an instance
  Batching batching_ = Batching::kWorkConserving;
  FixedBatch fixed_batch_;  // kFixed
  bool preload_ = true;
  std::function<void(Duration)> call_after_;
  std::optional<TimePoint> called_at_;  // when call_after_ will run dispatch()
  PrefillTracker prefills_;
  GatewayCounts counts_;
  EngineGauges ended_;  // totals of instances that have ended
  OutputBatch pending_;
  OutputBatch scratch_;
  bool progress_wanted_ = false;
  std::vector<RequestProgress> progress_;  // of the instances that have answered
};

}  // namespace sluice
