#include "function_sim/function_simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <queue>
#include <utility>

#include "base/check.h"
#include "function_sim/cluster_catalog.h"
#include "function_sim/function_cluster.h"
#include "function_sim/shared_cores.h"
#include "serverless/arrival_rate.h"
#include "serverless/batching.h"
#include "serverless/instance_scaler.h"
#include "serverless/usage_meter.h"

namespace sluice {
namespace {

constexpr Duration kHorizon = std::chrono::minutes(5);
constexpr Duration kTickLength = std::chrono::seconds(1);
constexpr std::int64_t kTicksOfPlan = 5;
constexpr Duration kLongestWait = std::chrono::seconds(60);  // for a place, as in the gateway
constexpr Duration kNoSlo = std::chrono::hours(24 * 365);
constexpr std::int64_t kEndless = std::int64_t{1} << 50;  // bytes that the meter may count
constexpr std::size_t kMostInView = 256;

std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

Quantiles quantiles_of(std::vector<float>& seconds) {
  Quantiles result;
  if (seconds.empty()) return result;
  std::ranges::sort(seconds);
  double sum = 0;
  for (const float one : seconds) sum += static_cast<double>(one);
  result.mean = sum / static_cast<double>(seconds.size());
  result.p50 = static_cast<double>(seconds[seconds.size() / 2]);
  result.p90 = static_cast<double>(seconds[seconds.size() * 90 / 100]);
  result.p99 = static_cast<double>(seconds[seconds.size() * 99 / 100]);
  return result;
}

class Simulation {
 public:
  Simulation(const ClusterSpec& cluster, std::span<const SimulatedFunction> functions,
             std::span<const FunctionCall> calls, const SystemSpec& system,
             const PriceList& prices);
  FunctionReport run();

 private:
  enum class Kind : std::uint8_t { kTick, kReady, kWorkEnd, kLook };
  struct Event {
    TimePoint time;
    std::int64_t order = 0;  // events of one time come in the order in which they were made
    Kind kind{};
    std::int32_t number = 0;  // of a place or function
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
    std::int32_t running = 0;   // calls that compute
    std::int32_t decoding = 0;  // of these
    std::int32_t place = -1;    // of its instance; -1: it has none
    TimePoint started_at;
    TimePoint ready_at;
    StartParts parts{};  // of its start
    TimePoint last_use;
    bool listed = false;  // in active_
    std::vector<WaitingRequest> view;
  };
  // A call that decodes.
  struct Decode {
    TimePoint first_token;
    Duration own_time{0};  // that its steps take without other functions and sequences
  };
  struct Place {
    explicit Place(bool turns) : work(turns) {}

    SharedCores work;
    std::optional<TimePoint> work_end;    // of the event that counts
    std::vector<std::int32_t> functions;  // instances
    std::int32_t prefilling = -1;         // function
    std::vector<std::int32_t> batch;      // calls
    std::int32_t sequences = 0;           // that decode
    std::vector<std::int32_t> shares;     // of the meter, by backbone
    std::optional<TimePoint> look_at;
  };

  const ModelTimes& model(const Function& function) const {
    return spec_.models[index(function.spec.model)];
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
  void add_work(std::int32_t place, SharedCores::Work work, double seconds);
  void plan_work_end(std::int32_t place);
  void end_work(std::int32_t place);
  void end_prefill(std::int32_t place);
  void end_decode(std::int32_t place, SharedCores::Work work);
  void charge_cores(const Function& function, Duration own_time);
  // The memory of instances and backbones.
  MemoryKind kind() const { return spec_.cores > 0 ? MemoryKind::kHost : MemoryKind::kDevice; }
  void note_parts(const Function& function, TimePoint arrival);
  void add_part(CallPart part, double seconds) {
    report_.parts[static_cast<std::size_t>(part)] += seconds;
  }
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
  std::vector<Decode> decodes_;       // by call
  std::vector<std::int32_t> active_;  // functions with calls or instances
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::int64_t next_order_ = 0;
  std::int64_t ticks_ = 0;
  std::int64_t open_ = 0;  // calls that have come and have not ended
  FunctionReport report_;
  std::vector<float> ttft_;
  std::vector<float> e2e_;
  double tpot_sum_ = 0;
};

Simulation::Simulation(const ClusterSpec& cluster, std::span<const SimulatedFunction> functions,
                       std::span<const FunctionCall> calls, const SystemSpec& system,
                       const PriceList& prices)
    : spec_(cluster),
      calls_(calls),
      system_(system),
      prices_(prices),
      cluster_(catalog_of(cluster, functions, system), memories_of(cluster)),
      meter_({cluster.cores, {kEndless, kEndless, kEndless}}, TimePoint()) {
  places_.resize(index(cluster_.places()), Place(cluster.cores > 0));
  const std::size_t backbones = system.shares_backbones ? cluster.models.size() : functions.size();
  for (Place& place : places_) {
    for (std::size_t b = 0; b < backbones; ++b) {
      place.shares.push_back(meter_.add_share(kind()));
    }
  }
  for (std::size_t f = 0; f < functions.size(); ++f) {
    Function function;
    function.spec = functions[f];
    function.backbone = system.shares_backbones ? functions[f].model : static_cast<std::int32_t>(f);
    function.meter = meter_.add_function();
    functions_.push_back(std::move(function));
  }
  decodes_.resize(calls.size());
  ttft_.reserve(calls.size());
  e2e_.reserve(calls.size());
}

void Simulation::arrive(std::int32_t call) {
  const std::int32_t number = calls_[index(call)].function;
  Function& function = functions_[index(number)];
  ++report_.calls;
  ++open_;
  if (!function.arrivals) function.arrivals.emplace(TimePoint(), kHorizon);
  function.arrivals->add(now_);
  if (!function.scaler) {
    ScalerOptions options = scaler_options_for(function.spec.idle);
    options.max_scale = 1;
    function.scaler.emplace(options, now_, function.place >= 0 ? 1 : 0);
  }
  if (!std::exchange(function.listed, true)) active_.push_back(number);
  if (function.place < 0 || function.ready_at > now_) ++report_.cold;
  function.waiting.push_back({now_, call});
  function.scaler->record(now_,
                          static_cast<double>(function.running + std::ssize(function.waiting)));
  note_activity(function);
  if (function.place < 0 && !find_place(number)) return;
  if (function.ready_at <= now_) dispatch(function.place);
}

// Where it would compute soonest, and then where most is free; -1: nowhere.
std::int32_t Simulation::best_place(std::int32_t number) const {
  std::int32_t best = -1;
  Duration best_delay{0};
  for (std::int32_t p = 0; p < cluster_.places(); ++p) {
    if (!cluster_.fits(number, p)) continue;
    const Duration delay = cluster_.start_delay(number, p, now_);
    if (best >= 0 && delay > best_delay) continue;
    if (best >= 0 && delay == best_delay && cluster_.free_bytes(p) <= cluster_.free_bytes(best)) {
      continue;
    }
    best = p;
    best_delay = delay;
  }
  return best;
}

bool Simulation::find_place(std::int32_t number) {
  std::int32_t place = best_place(number);
  while (place < 0 && end_longest_idle()) place = best_place(number);
  if (place < 0) return false;
  start(number, place);
  return true;
}

bool Simulation::end_longest_idle() {
  std::int32_t longest = -1;
  for (const std::int32_t number : active_) {
    const Function& function = functions_[index(number)];
    if (function.place < 0 || function.running > 0 || !function.waiting.empty()) continue;
    if (longest < 0 || function.last_use < functions_[index(longest)].last_use) longest = number;
  }
  if (longest < 0) return false;
  end(longest);
  return true;
}

void Simulation::start(std::int32_t number, std::int32_t place) {
  Function& function = functions_[index(number)];
  CHECK(function.place < 0);
  function.place = place;
  function.started_at = now_;
  function.parts = cluster_.start_parts(number, place);
  function.ready_at = cluster_.start(number, place, now_);
  function.last_use = now_;
  ++report_.starts;
  places_[index(place)].functions.push_back(number);
  const ModelTimes& times = model(function);
  std::int64_t bytes = times.instance.bytes + function.spec.adapters * times.adapter_device.bytes;
  if (kind() == MemoryKind::kHost) {
    bytes += spec_.worker.bytes;
  } else {
    meter_.set_bytes(now_, function.meter, MemoryKind::kHost, spec_.worker.bytes);
  }
  meter_.set_bytes(now_, function.meter, kind(), bytes);
  const std::int32_t share = places_[index(place)].shares[index(function.backbone)];
  meter_.set_share_bytes(now_, share, times.weights.device.bytes);
  meter_.join(now_, function.meter, share);
  push(function.ready_at, Kind::kReady, number);
}

void Simulation::end(std::int32_t number) {
  Function& function = functions_[index(number)];
  Place& place = places_[index(function.place)];
  // The gateway's functions are processes: an ended one is gone.
  const auto keeps =
      spec_.cores > 0 ? FunctionCluster::Keeps::kAllButProcess : FunctionCluster::Keeps::kAll;
  cluster_.end(number, function.place, system_.keeps ? keeps : FunctionCluster::Keeps::kNothing);
  meter_.leave(now_, function.meter, place.shares[index(function.backbone)]);
  meter_.set_bytes(now_, function.meter, kind(), 0);
  meter_.set_bytes(now_, function.meter, MemoryKind::kHost, 0);
  std::erase(place.functions, number);
  function.place = -1;
}

// At most one batch of a function.
void Simulation::view_function(std::int32_t number, std::vector<WaitingBatch>& batches) {
  Function& function = functions_[index(number)];
  if (function.waiting.empty() || function.ready_at > now_) return;
  const ModelTimes& times = model(function);
  WaitingBatch batch;
  batch.function = number;
  batch.slo =
      system_.refuses && function.spec.ttft_slo.count() > 0 ? function.spec.ttft_slo : kNoSlo;
  batch.time = times.prefill;
  // A fixed batch is computed to its end before the function's next one.
  if (system_.batching == Batching::kFixed && function.running > 0) batch.ready_in = Duration(1);
  function.view.clear();
  double tokens = 0;
  for (const Waiting& one : function.waiting) {
    if (function.view.size() == kMostInView) break;
    // The time of a start does not count against the SLO, as in the gateway.
    function.view.push_back(
        {std::max(one.arrival, function.ready_at), calls_[index(one.call)].prompt_tokens});
    tokens += calls_[index(one.call)].prompt_tokens;
  }
  batch.line = line_of(times.prefill, tokens / static_cast<double>(function.view.size()));
  batch.requests = function.view;
  batches.push_back(batch);
}

void Simulation::dispatch(std::int32_t number) {
  Place& place = places_[index(number)];
  if (place.prefilling >= 0) return;
  std::vector<WaitingBatch> batches;
  for (const std::int32_t function : place.functions) view_function(function, batches);
  if (batches.empty()) return;
  const std::int32_t seats = spec_.max_sequences - place.sequences;
  const std::array<std::int32_t, 1> turns = {seats > 0 ? 0 : 1};
  const BatchingPlan plan = plan_batches({now_, system_.batching, batches, turns, system_.fixed});
  for (const Refusal& refusal : plan.refusals) {
    Function& function = functions_[index(batches[index(refusal.batch)].function)];
    function.waiting.pop_front();
    ++report_.refused;
    --open_;
    note_activity(function);
  }
  if (!plan.dispatches.empty() && seats > 0) {
    const BatchDispatch& first = plan.dispatches.front();
    return begin(number, batches[index(first.batch)].function, std::min(first.requests, seats));
  }
  if (plan.wake_at &&
      (!place.look_at || *place.look_at > *plan.wake_at || *place.look_at <= now_)) {
    place.look_at = plan.wake_at;
    push(*plan.wake_at, Kind::kLook, number);
  }
}

void Simulation::begin(std::int32_t number, std::int32_t of, std::int32_t requests) {
  Place& place = places_[index(number)];
  Function& function = functions_[index(of)];
  place.prefilling = of;
  place.batch.clear();
  std::int64_t tokens = 0;
  for (std::int32_t i = 0; i < requests; ++i) {
    place.batch.push_back(function.waiting.front().call);
    note_parts(function, function.waiting.front().arrival);
    tokens += calls_[index(function.waiting.front().call)].prompt_tokens;
    function.waiting.pop_front();
  }
  function.running += requests;
  function.last_use = now_;
  const double prefill = model(function).prefill.seconds(tokens);
  add_part(CallPart::kPrefill, prefill * requests);
  charge_cores(function, from_seconds(prefill));
  add_work(number, {of, -1}, prefill);
}

void Simulation::charge_cores(const Function& function, Duration own_time) {
  if (spec_.cores == 0) return;
  meter_.charge_cores(now_, function.meter, Amount(own_time.count()) * spec_.cores);
}

void Simulation::add_work(std::int32_t number, SharedCores::Work work, double seconds) {
  places_[index(number)].work.add(now_, work, from_seconds(seconds));
  plan_work_end(number);
}

// Work that is added may let all other work end later.
void Simulation::plan_work_end(std::int32_t number) {
  Place& place = places_[index(number)];
  const std::optional<TimePoint> next = place.work.next_end();
  if (next == place.work_end) return;
  place.work_end = next;
  if (next) push(*next, Kind::kWorkEnd, number);
}

void Simulation::end_work(std::int32_t number) {
  Place& place = places_[index(number)];
  if (place.work_end != now_) return;  // it was planned anew
  place.work_end.reset();
  if (const auto work = place.work.take_ended(now_)) {
    if (work->call < 0) {
      end_prefill(number);
    } else {
      end_decode(number, *work);
    }
  }
  plan_work_end(number);
}

// The time that a call has waited, by its reasons.
void Simulation::note_parts(const Function& function, TimePoint arrival) {
  const auto seconds = [](TimePoint from, TimePoint to) {
    return to_seconds(std::max(to - from, Duration(0)));
  };
  add_part(CallPart::kPlace, seconds(arrival, function.started_at));
  add_part(CallPart::kQueue, seconds(std::max(arrival, function.ready_at), now_));
  const double start = seconds(function.started_at, function.ready_at);
  if (start <= 0) return;
  // A call that came during the start has its share of each part.
  const double share = seconds(std::max(arrival, function.started_at), function.ready_at) / start;
  const StartParts& parts = function.parts;
  const double own = parts.libraries + parts.backbone + parts.adapter + parts.kernels;
  add_part(CallPart::kLibraries, share * parts.libraries);
  add_part(CallPart::kBackbone, share * parts.backbone);
  add_part(CallPart::kAdapter, share * parts.adapter);
  add_part(CallPart::kKernels, share * parts.kernels);
  add_part(CallPart::kUnderWay, share * std::max(start - own, 0.0));
}

void Simulation::end_prefill(std::int32_t number) {
  Place& place = places_[index(number)];
  const std::int32_t of = std::exchange(place.prefilling, -1);
  Function& function = functions_[index(of)];
  const auto batch = static_cast<std::int32_t>(place.batch.size());
  place.sequences += batch;
  function.decoding += batch;
  const ModelTimes& times = model(function);
  // A device computes the sequences of all functions in a step, and a turn those of one.
  const std::int32_t sequences = spec_.cores > 0 ? function.decoding : place.sequences;
  const double tpot = times.decode_step_s + times.decode_sequence_s * sequences;
  const double own = times.decode_step_s / function.decoding + times.decode_sequence_s;
  for (const std::int32_t call : place.batch) {
    const Duration ttft = now_.since_start - calls_[index(call)].arrival;
    const int steps = calls_[index(call)].output_tokens - 1;
    ttft_.push_back(static_cast<float>(to_seconds(ttft)));
    if (function.spec.ttft_slo.count() > 0 && ttft > function.spec.ttft_slo) {
      ++report_.violations;
    }
    meter_.count_request(function.meter);
    decodes_[index(call)] = {now_, from_seconds(own * steps)};
    place.work.add(now_, {of, call}, from_seconds(tpot * steps));
  }
  dispatch(number);
}

void Simulation::end_decode(std::int32_t number, SharedCores::Work work) {
  Function& function = functions_[index(work.function)];
  const FunctionCall& call = calls_[index(work.call)];
  const Decode& decode = decodes_[index(work.call)];
  charge_cores(function, decode.own_time);
  const double seconds = to_seconds(now_ - decode.first_token);
  e2e_.push_back(static_cast<float>(to_seconds(now_.since_start - call.arrival)));
  if (call.output_tokens > 1) tpot_sum_ += seconds / (call.output_tokens - 1);
  add_part(CallPart::kDecode, seconds);
  --function.running;
  --function.decoding;
  --places_[index(number)].sequences;
  --open_;
  ++report_.answered;
  function.last_use = now_;
  note_activity(function);
  dispatch(number);
}

void Simulation::handle(const Event& event) {
  switch (event.kind) {
    case Kind::kTick: return tick();
    case Kind::kReady: {
      const Function& function = functions_[index(event.number)];
      if (function.place >= 0) dispatch(function.place);
      return;
    }
    case Kind::kWorkEnd: return end_work(event.number);
    case Kind::kLook: return dispatch(event.number);
  }
}

void Simulation::refuse_unplaced(Function& function) {
  while (!function.waiting.empty() && now_ - function.waiting.front().arrival >= kLongestWait) {
    function.waiting.pop_front();
    ++report_.unplaced;
    --open_;
  }
  note_activity(function);
}

void Simulation::scale(Function& function, std::int32_t number) {
  const auto open = static_cast<double>(function.running + std::ssize(function.waiting));
  function.scaler->record(now_, open);
  if (function.place < 0) {
    if (!function.waiting.empty() && !find_place(number)) refuse_unplaced(function);
    return;
  }
  const bool to_zero =
      function.scaler->decide(now_, function.ready_at <= now_ ? 1 : 0).instances == 0;
  if (to_zero && open == 0 && !system_.always_on) end(number);
}

void Simulation::preload() {
  std::vector<double> rates;
  for (const Function& function : functions_) {
    rates.push_back(function.arrivals ? function.arrivals->expected_rate(now_, kHorizon) : 0);
  }
  cluster_.set_rates(rates);
  if (!system_.preloads.empty()) cluster_.preload(now_, system_.preloads);
}

void Simulation::tick() {
  const std::vector<std::int32_t> active = active_;
  for (const std::int32_t number : active) scale(functions_[index(number)], number);
  std::erase_if(active_, [&](std::int32_t number) {
    Function& function = functions_[index(number)];
    if (function.place >= 0 || !function.waiting.empty()) return false;
    function.listed = false;
    return true;
  });
  if (ticks_++ % kTicksOfPlan == 0) preload();
  if (open_ > 0 || report_.calls < std::ssize(calls_)) push(now_ + kTickLength, Kind::kTick, 0);
}

FunctionReport Simulation::run() {
  if (system_.always_on) {
    for (std::int32_t f = 0; f < std::ssize(functions_); ++f) {
      if (best_place(f) < 0) continue;
      find_place(f);
      functions_[index(f)].ready_at = now_;
    }
  }
  push(TimePoint(), Kind::kTick, 0);
  std::int32_t next = 0;
  while (!events_.empty() || next < std::ssize(calls_)) {
    const bool comes =
        next < std::ssize(calls_) &&
        (events_.empty() || calls_[index(next)].arrival <= events_.top().time.since_start);
    if (comes) {
      now_ = {calls_[index(next)].arrival};
      arrive(next++);
      continue;
    }
    const Event event = events_.top();
    events_.pop();
    now_ = event.time;
    handle(event);
  }
  cluster_.check_integrity();
  return report();
}

FunctionReport Simulation::report() {
  CHECK(open_ == 0 && report_.calls == report_.answered + report_.refused + report_.unplaced);
  report_.seconds = to_seconds(now_.since_start);
  report_.preloads = cluster_.loads();
  report_.offloads = cluster_.offloads();
  report_.tpot_s = ttft_.empty() ? 0 : tpot_sum_ / static_cast<double>(ttft_.size());
  for (double& part : report_.parts) part /= std::max(1.0, static_cast<double>(ttft_.size()));
  report_.ttft = quantiles_of(ttft_);
  report_.e2e = quantiles_of(e2e_);
  double units = 0;
  for (const Function& function : functions_) {
    const FunctionUsage usage = meter_.of(function.meter, now_);
    units += units_of(usage, prices_).total();
    report_.core_seconds += 1e-9 * static_cast<double>(usage.core_ns);
    for (const ByteTime& memory : usage.memory) {
      report_.gb_seconds += 1e-18 * static_cast<double>(memory.active + memory.idle);
    }
  }
  if (system_.always_on) units = always_on_units();
  report_.cost = money_for(units, 0, prices_);
  return report_;
}

// A rented machine has whole devices. A process that holds all functions of a backbone is billed by
// its memory. Both are active until the end.
double Simulation::always_on_units() const {
  double bytes = 0;
  for (const Place& place : places_) {
    if (place.functions.empty()) continue;
    if (!system_.merges) {
      bytes += static_cast<double>(spec_.cores > 0 ? spec_.host_bytes : spec_.device_bytes);
    }
    for (const std::int32_t f : place.functions) {
      if (!system_.merges) break;
      const ModelTimes& times = model(functions_[index(f)]);
      bytes += static_cast<double>(times.weights.device.bytes + times.instance.bytes);
      bytes += static_cast<double>(functions_[index(f)].spec.adapters) *
               static_cast<double>(times.adapter_device.bytes);
    }
  }
  const auto memory = static_cast<std::size_t>(kind());
  return bytes * 1e-9 * report_.seconds * prices_.memory[memory].active;
}

}  // namespace

FunctionReport simulate_functions(const ClusterSpec& cluster,
                                  std::span<const SimulatedFunction> functions,
                                  std::span<const FunctionCall> calls, const SystemSpec& system,
                                  const PriceList& prices) {
  if (!system.merges) return Simulation(cluster, functions, calls, system, prices).run();
  const MergedFunctions merged = merge_functions(functions, calls);
  return Simulation(cluster, merged.functions, merged.calls, system, prices).run();
}

}  // namespace sluice
