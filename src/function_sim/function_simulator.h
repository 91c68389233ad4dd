// FunctionSimulator: one run of simulate_functions(). It holds what happens next, the functions
// with their waiting and running calls, the cluster's memory and the bill. Owner:
// simulate_functions(). One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "function_sim/call_times.h"
#include "function_sim/core_engines.h"
#include "function_sim/function_cluster.h"
#include "function_sim/function_simulation.h"
#include "serverless/arrival_rate.h"
#include "serverless/batching.h"
#include "serverless/instance_scaler.h"
#include "serverless/usage_meter.h"

namespace sluice {

class FunctionSimulator {
 public:
  FunctionSimulator(const ClusterSpec& cluster, std::span<const SimulatedFunction> functions,
                    std::span<const FunctionCall> calls, const SystemSpec& system,
                    const PriceList& prices);
  FunctionReport run();

 private:
  enum class Kind : std::uint8_t { kTick, kReady, kPrefillEnd, kDecodeEnd, kStepEnd, kLook };
  struct Event {
    TimePoint time;
    std::int64_t order = 0;  // events of one time come in the order in which they were made
    Kind kind{};
    std::int32_t number = 0;  // of a place, function or call
    friend bool operator>(const Event& a, const Event& b) {
      return std::pair(a.time.since_start, a.order) > std::pair(b.time.since_start, b.order);
    }
  };
  struct Waiting {
    TimePoint arrival;
    std::int32_t call = 0;
  };
  struct Function {
    SimulatedFunction spec;
    std::int32_t backbone = 0;  // of the catalog
    std::int32_t meter = 0;
    std::optional<Arrivals> arrivals;
    std::optional<InstanceScaler> scaler;
    std::deque<Waiting> waiting;
    std::int32_t running = 0;         // calls that compute
    std::int32_t prefilling = 0;      // of these, without a first token
    std::int64_t prefill_tokens = 0;  // of these
    std::int32_t place = -1;          // of its instance; -1: it has none
    std::int64_t process_bytes = 0;
    std::int64_t kv_bytes = 0;
    TimePoint started_at;
    TimePoint ready_at;
    StartParts parts{};  // of its start
    TimePoint last_use;
    bool listed = false;  // in active_
    std::vector<WaitingRequest> view;
  };
  struct Place {
    std::vector<std::int32_t> functions;  // instances
    std::int32_t prefilling = -1;         // function
    std::vector<std::int32_t> batch;      // calls
    std::int32_t sequences = 0;           // that decode
    std::vector<std::int32_t> shares;     // of the meter, by backbone
    std::optional<TimePoint> look_at;
  };

  const ModelTimes& model(const Function& function) const {
    return spec_.models[static_cast<std::size_t>(function.spec.model)];
  }
  void push(TimePoint time, Kind kind, std::int32_t number) {
    events_.push({time, next_order_++, kind, number});
  }
  void arrive(std::int32_t call);
  void handle(const Event& event);
  void tick();
  void scale(Function& function, std::int32_t number);
  bool find_place(std::int32_t number);
  std::int32_t best_place(std::int32_t number) const;
  bool end_longest_idle();
  void start(std::int32_t number, std::int32_t place);
  void end(std::int32_t number);
  void dispatch(std::int32_t place);
  void view_function(std::int32_t number, std::vector<WaitingBatch>& batches);
  void begin(std::int32_t place, std::int32_t number, std::int32_t requests);
  void dispatch_cores();
  void dispatch_front(std::int32_t number, std::int32_t requests);
  std::vector<std::int32_t> turns_of(std::span<const WaitingBatch> batches,
                                     std::span<const std::int32_t> tenants) const;
  void refuse_front(std::int32_t number);
  void look(std::int32_t place, std::optional<TimePoint> at);
  // A call comes: the gateway and the client take a core from the step that computes.
  void disturb_step();
  void plan_step_end();
  void end_step();
  void end_prefill(std::int32_t place);
  void take_first_token(std::int32_t call);
  void take_last_token(std::int32_t call);
  void grow_kv(Function& function, std::int32_t tokens, std::int32_t before);
  // The memory of instances and backbones.
  MemoryKind kind() const { return spec_.cores > 0 ? MemoryKind::kHost : MemoryKind::kDevice; }
  void take_waiting(Function& function);
  void refuse_unplaced(Function& function);
  void preload();
  void note_activity(Function& function) {
    meter_.set_active(now_, function.meter, function.running > 0 || !function.waiting.empty());
  }
  FunctionReport report();
  double always_on_units() const;

  const ClusterSpec& spec_;
  const std::span<const FunctionCall> calls_;
  const SystemSpec& system_;
  const PriceList& prices_;
  FunctionCluster cluster_;
  UsageMeter meter_;
  TimePoint now_;
  std::vector<Function> functions_;
  std::vector<Place> places_;
  // By call: when it was dispatched, and then when its first token came.
  std::vector<TimePoint> since_;
  std::optional<CoreEngines> engines_;
  std::optional<TimePoint> step_end_;  // of the event
  std::vector<std::int32_t> active_;   // functions with calls or instances
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::int64_t next_order_ = 0;
  std::int64_t ticks_ = 0;
  std::int64_t open_ = 0;  // calls that have come and have not ended
  FunctionReport report_;
  std::vector<double> http_s_;  // by call
  CallTimes times_;
};

}  // namespace sluice
