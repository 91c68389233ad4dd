#include "function_sim/function_simulation.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "function_sim/cluster_catalog.h"
#include "function_sim/function_simulator.h"
#include "serverless/batching.h"

namespace sluice {
namespace {

constexpr Duration kHorizon = std::chrono::minutes(5);
constexpr Duration kTickLength = std::chrono::seconds(1);
constexpr std::int64_t kTicksOfPlan = 5;
constexpr Duration kLongestWait = std::chrono::seconds(60);  // for a place, as in the gateway
constexpr Duration kNoSlo = std::chrono::hours(24 * 365);
constexpr std::int64_t kEndless = std::int64_t{1} << 50;  // bytes that the meter may count
constexpr std::size_t kMostInView = 256;
constexpr std::int32_t kBlockTokens = 16;  // of KV, as in the engine

std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

}  // namespace

FunctionSimulator::FunctionSimulator(const ClusterSpec& cluster,
                                     std::span<const SimulatedFunction> functions,
                                     std::span<const FunctionCall> calls, const SystemSpec& system,
                                     const PriceList& prices)
    : spec_(cluster),
      calls_(calls),
      system_(system),
      prices_(prices),
      cluster_(catalog_of(cluster, functions, system), memories_of(cluster)),
      meter_({cluster.cores, {kEndless, kEndless, kEndless}}, TimePoint()),
      http_s_(calls.size(), cluster.http_s),
      times_(calls.size()) {
  places_.resize(index(cluster_.places()));
  if (cluster.cores > 0) {
    engines_.emplace(CoreEngines::Options{.wake = from_seconds(cluster.wake_s),
                                          .rests = cluster.rests,
                                          .handover = from_seconds(cluster.handover_s),
                                          .max_sequences = cluster.max_sequences});
  }
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
  since_.resize(calls.size());
}

void FunctionSimulator::arrive(std::int32_t call) {
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
  if (engines_) {
    http_s_[index(call)] =
        after_rest(spec_.rests, engines_->rest(now_), &RestTime::http_s, spec_.http_s);
    disturb_step();
  }
  if (function.place < 0 && !find_place(number)) return;
  if (function.ready_at <= now_) dispatch(function.place);
}

// Where it would compute soonest, then where it adds the fewest bytes, and then where most is free;
// -1: nowhere. A backbone that loads for another function is as far away from every device.
std::int32_t FunctionSimulator::best_place(std::int32_t number) const {
  std::int32_t best = -1;
  std::tuple<Duration, std::int64_t, std::int64_t> least;
  for (std::int32_t p = 0; p < cluster_.places(); ++p) {
    if (!cluster_.fits(number, p)) continue;
    const std::tuple cost(cluster_.start_delay(number, p, now_), cluster_.missing_bytes(number, p),
                          -cluster_.free_bytes(p));
    if (best >= 0 && cost >= least) continue;
    best = p;
    least = cost;
  }
  return best;
}

bool FunctionSimulator::find_place(std::int32_t number) {
  std::int32_t place = best_place(number);
  while (place < 0 && end_longest_idle()) place = best_place(number);
  if (place < 0) return false;
  start(number, place);
  return true;
}

bool FunctionSimulator::end_longest_idle() {
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

void FunctionSimulator::start(std::int32_t number, std::int32_t place) {
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
  function.process_bytes = bytes;
  function.kv_bytes = 0;
  if (engines_) engines_->add(number, function.spec.tenant, times);
  meter_.set_bytes(now_, function.meter, kind(), bytes);
  const std::int32_t share = places_[index(place)].shares[index(function.backbone)];
  meter_.set_share_bytes(now_, share, times.weights.device.bytes);
  meter_.join(now_, function.meter, share);
  push(function.ready_at, Kind::kReady, number);
}

void FunctionSimulator::end(std::int32_t number) {
  Function& function = functions_[index(number)];
  Place& place = places_[index(function.place)];
  // The gateway's functions are processes: an ended one is gone.
  const auto keeps =
      spec_.cores > 0 ? FunctionCluster::Keeps::kAllButProcess : FunctionCluster::Keeps::kAll;
  cluster_.end(number, function.place, system_.keeps ? keeps : FunctionCluster::Keeps::kNothing);
  if (engines_) engines_->remove(number);
  meter_.leave(now_, function.meter, place.shares[index(function.backbone)]);
  meter_.set_bytes(now_, function.meter, kind(), 0);
  meter_.set_bytes(now_, function.meter, MemoryKind::kHost, 0);
  std::erase(place.functions, number);
  function.place = -1;
}

// At most one batch of a function.
void FunctionSimulator::view_function(std::int32_t number, std::vector<WaitingBatch>& batches) {
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
  batch.ahead = engines_ ? function.prefill_tokens : 0;
  if (engines_ && function.running >= spec_.max_sequences) batch.ready_in = Duration(1);
  batch.line = line_of(times.prefill, tokens / static_cast<double>(function.view.size()));
  batch.requests = function.view;
  batches.push_back(batch);
}

void FunctionSimulator::refuse_front(std::int32_t number) {
  Function& function = functions_[index(number)];
  function.waiting.pop_front();
  ++report_.refused;
  --open_;
  note_activity(function);
}

void FunctionSimulator::look(std::int32_t number, std::optional<TimePoint> at) {
  Place& place = places_[index(number)];
  if (!at || (place.look_at && *place.look_at <= *at && *place.look_at > now_)) return;
  place.look_at = at;
  push(*at, Kind::kLook, number);
}

void FunctionSimulator::dispatch(std::int32_t number) {
  if (engines_) return dispatch_cores();
  Place& place = places_[index(number)];
  if (place.prefilling >= 0) return;
  std::vector<WaitingBatch> batches;
  for (const std::int32_t function : place.functions) view_function(function, batches);
  if (batches.empty()) return;
  const std::int32_t seats = spec_.max_sequences - place.sequences;
  const std::array<std::int32_t, 1> turns = {seats > 0 ? 0 : 1};
  const BatchingPlan plan = plan_batches({now_, system_.batching, batches, turns, system_.fixed});
  for (const Refusal& refusal : plan.refusals) {
    refuse_front(batches[index(refusal.batch)].function);
  }
  if (!plan.dispatches.empty() && seats > 0) {
    const BatchDispatch& first = plan.dispatches.front();
    return begin(number, batches[index(first.batch)].function, std::min(first.requests, seats));
  }
  look(number, plan.wake_at);
}

// The oldest call of the function is computed from now on.
void FunctionSimulator::take_waiting(Function& function) {
  const Waiting one = function.waiting.front();
  function.waiting.pop_front();
  times_.waited({one.arrival, function.started_at, function.ready_at, now_}, function.parts);
  since_[index(one.call)] = now_;
  ++function.running;
  function.last_use = now_;
}

void FunctionSimulator::begin(std::int32_t number, std::int32_t of, std::int32_t requests) {
  Place& place = places_[index(number)];
  Function& function = functions_[index(of)];
  place.prefilling = of;
  place.batch.clear();
  std::int64_t tokens = 0;
  for (std::int32_t i = 0; i < requests; ++i) {
    place.batch.push_back(function.waiting.front().call);
    tokens += calls_[index(place.batch.back())].prompt_tokens;
    take_waiting(function);
  }
  push(now_ + from_seconds(model(function).prefill.seconds(tokens)), Kind::kPrefillEnd, number);
}

// The KV of a call's whole blocks, of which those of its first `before` tokens are there.
void FunctionSimulator::grow_kv(Function& function, std::int32_t tokens, std::int32_t before) {
  const ModelTimes& times = model(function);
  if (times.kv_bytes == 0) return;
  const std::int64_t blocks = tokens / kBlockTokens - before / kBlockTokens;
  function.kv_bytes =
      std::min(times.kv_bytes, function.kv_bytes + blocks * kBlockTokens * times.token_bytes);
  meter_.set_bytes(now_, function.meter, kind(), function.process_bytes + function.kv_bytes);
}

void FunctionSimulator::take_first_token(std::int32_t number) {
  const FunctionCall& call = calls_[index(number)];
  Function& function = functions_[index(call.function)];
  TimePoint& since = since_[index(number)];
  const double ttft =
      times_.first_token(now_.since_start - call.arrival, now_ - since, http_s_[index(number)]);
  const Duration slo = function.spec.ttft_slo;
  if (slo.count() > 0 && ttft > to_seconds(slo)) ++report_.violations;
  meter_.count_request(function.meter);
  grow_kv(function, call.prompt_tokens, 0);
  since = now_;
}

void FunctionSimulator::take_last_token(std::int32_t number) {
  const FunctionCall& call = calls_[index(number)];
  Function& function = functions_[index(call.function)];
  times_.last_token(now_.since_start - call.arrival, now_ - since_[index(number)],
                    call.output_tokens, http_s_[index(number)]);
  // The last token is not computed.
  grow_kv(function, call.prompt_tokens + call.output_tokens - 1, call.prompt_tokens);
  --function.running;
  --open_;
  ++report_.answered;
  function.last_use = now_;
  note_activity(function);
}

// Ends the batch of prompts of a device.
void FunctionSimulator::end_prefill(std::int32_t number) {
  Place& place = places_[index(number)];
  const ModelTimes& times = model(functions_[index(std::exchange(place.prefilling, -1))]);
  place.sequences += static_cast<std::int32_t>(place.batch.size());
  const double tpot = times.decode_step_s + times.decode_sequence_s * place.sequences;
  for (const std::int32_t call : place.batch) {
    take_first_token(call);
    push(now_ + from_seconds(tpot * (calls_[index(call)].output_tokens - 1)), Kind::kDecodeEnd,
         call);
  }
  dispatch(number);
}

void FunctionSimulator::handle(const Event& event) {
  switch (event.kind) {
    case Kind::kTick: return tick();
    case Kind::kReady: {
      const Function& function = functions_[index(event.number)];
      if (function.place >= 0) dispatch(function.place);
      return;
    }
    case Kind::kPrefillEnd: return end_prefill(event.number);
    case Kind::kDecodeEnd: {
      const std::int32_t place = functions_[index(calls_[index(event.number)].function)].place;
      take_last_token(event.number);
      --places_[index(place)].sequences;
      return dispatch(place);
    }
    case Kind::kStepEnd: return end_step();
    case Kind::kLook: return dispatch(event.number);
  }
}

void FunctionSimulator::refuse_unplaced(Function& function) {
  while (!function.waiting.empty() && now_ - function.waiting.front().arrival >= kLongestWait) {
    function.waiting.pop_front();
    ++report_.unplaced;
    --open_;
  }
  note_activity(function);
}

void FunctionSimulator::scale(Function& function, std::int32_t number) {
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

void FunctionSimulator::preload() {
  std::vector<double> rates;
  for (const Function& function : functions_) {
    rates.push_back(function.arrivals ? function.arrivals->expected_rate(now_, kHorizon) : 0);
  }
  cluster_.set_rates(rates);
  if (!system_.preloads.empty()) cluster_.preload(now_, system_.preloads);
}

void FunctionSimulator::tick() {
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

FunctionReport FunctionSimulator::run() {
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

FunctionReport FunctionSimulator::report() {
  CHECK(open_ == 0 && report_.calls == report_.answered + report_.refused + report_.unplaced);
  report_.seconds = to_seconds(now_.since_start);
  report_.preloads = cluster_.loads();
  report_.offloads = cluster_.offloads();
  report_.tpot_s = times_.tpot();
  report_.parts = times_.parts();
  report_.ttft = times_.ttft();
  report_.e2e = times_.e2e();
  double units = 0;
  for (std::int32_t f = 0; f < std::ssize(functions_); ++f) {
    const Function& function = functions_[index(f)];
    if (engines_) {
      const Amount turns = engines_->turn_time(f).count();
      meter_.charge_cores(now_, function.meter, turns * spec_.cores);
    }
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
double FunctionSimulator::always_on_units() const {
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

FunctionReport simulate_functions(const ClusterSpec& cluster,
                                  std::span<const SimulatedFunction> functions,
                                  std::span<const FunctionCall> calls, const SystemSpec& system,
                                  const PriceList& prices) {
  if (!system.merges) return FunctionSimulator(cluster, functions, calls, system, prices).run();
  const MergedFunctions merged = merge_functions(functions, calls);
  return FunctionSimulator(cluster, merged.functions, merged.calls, system, prices).run();
}

}  // namespace sluice
