#include "tests/support/gateway_simulation.h"

#include <algorithm>

#include "base/check.h"

namespace sluice::test {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(20);
constexpr std::int64_t kTicksPerSecond = 50;
constexpr std::int64_t kKvBytes = 2;  // of a request
constexpr std::int32_t kCoresPerTurn = 2;
constexpr PrefillTime kPrefill{0.01, 2e-4};

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

ScalerOptions scaler_options() {
  ScalerOptions options = scaler_options_for(std::chrono::seconds(5));
  options.target = 4;
  options.queue_depth = 20;
  return options;
}

MachineCapacity machine_of(const GatewayWorld& world) {
  return {kCoresPerTurn * world.devices, {world.host_bytes, world.device_bytes * world.devices, 0}};
}

}  // namespace

GatewaySimulation::GatewaySimulation(const GatewayWorld& world)
    : world_(world), random_(world.seed + 1), meter_(machine_of(world), TimePoint()) {
  make_world();
}

void GatewaySimulation::make_world() {
  const auto number = [&](std::int64_t low, std::int64_t high) {
    return low +
           static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(high - low + 1)));
  };
  artifacts_.num_memories = world_.devices + 1;
  capacity_.assign(at(artifacts_.num_memories), world_.device_bytes);
  capacity_[0] = world_.host_bytes;
  turns_.resize(at(world_.devices));
  worker_ = artifacts_.add(artifacts_.num_artifacts++, 0, 10, 0.05);
  for (std::int32_t b = 0; b < world_.backbones; ++b) {
    const std::int32_t artifact = artifacts_.num_artifacts++;
    const std::int64_t bytes = number(100, 200);
    const double load_s = 0.004 * static_cast<double>(bytes);
    backbone_on_host_.push_back(artifacts_.add(artifact, 0, bytes, 0.7 * load_s));
    backbone_on_.emplace_back();
    share_of_.emplace_back();
    for (std::int32_t d = 0; d < world_.devices; ++d) {
      backbone_on_.back().push_back(artifacts_.add(artifact, d + 1, bytes, load_s, {worker_}));
      share_of_.back().push_back(meter_.add_share(MemoryKind::kDevice));
    }
  }
  for (std::int32_t f = 0; f < world_.functions; ++f) {
    Function function{0,
                      {},
                      0,
                      true,
                      Arrivals({}, std::chrono::seconds(20)),
                      InstanceScaler(scaler_options(), {}, 0),
                      {},
                      0};
    function.backbone = static_cast<std::int32_t>(number(0, world_.backbones - 1));
    function.slo = std::chrono::milliseconds(number(1500, 4000));
    function.rate = 2 * random_.uniform() * world_.calls_per_second / world_.functions;
    functions_.push_back(function);
    const std::int32_t artifact = artifacts_.num_artifacts++;
    const std::int64_t bytes = number(5, 30);
    adapter_on_.emplace_back();
    for (std::int32_t d = 0; d < world_.devices; ++d) {
      const std::int32_t backbone = backbone_on_[at(function.backbone)][at(d)];
      adapter_on_.back().push_back(
          artifacts_.add(artifact, d + 1, bytes, 0.005 * static_cast<double>(bytes), {backbone}));
    }
    meter_.add_function();
  }
  artifacts_.check_integrity();
  preload_policy_.emplace(artifacts_);
  loaded_.resize(artifacts_.placements.size());
  joined_.assign(
      at(world_.functions),
      std::vector<std::vector<bool>>(at(world_.backbones), std::vector<bool>(at(world_.devices))));
}

// FNV-1a over 64-bit words.
void GatewaySimulation::note(std::uint64_t value) {
  report_.digest = (report_.digest ^ value) * 0x100000001B3ULL;
}

// --- Memory.

void GatewaySimulation::use(std::int32_t placement, std::int32_t change) {
  Loaded& one = loaded_[at(placement)];
  one.users += change;
  CHECK(one.present && one.users >= 0);
}

std::int64_t GatewaySimulation::free_bytes(std::int32_t memory) const {
  std::int64_t free = capacity_[at(memory)];
  for (std::size_t i = 0; i < loaded_.size(); ++i) {
    const Placement& placement = artifacts_.placements[i];
    if (loaded_[i].present && placement.memory == memory) free -= placement.bytes;
  }
  return memory == 0 ? free : free - turns_[at(memory - 1)].kv_bytes;
}

TimePoint GatewaySimulation::ready_time(std::int32_t placement) const {
  return loaded_[at(placement)].ready_at.value_or(now_);
}

// Begins a load; what it needs stays until it has ended.
void GatewaySimulation::load(std::int32_t placement) {
  const Placement& one = artifacts_.placements[at(placement)];
  Loaded& loaded = loaded_[at(placement)];
  CHECK(!loaded.present && free_bytes(one.memory) >= one.bytes);
  TimePoint start = now_;
  for (const std::int32_t need : artifacts_.needs_of(one)) {
    use(need, 1);
    start = std::max(start, ready_time(need));
  }
  double seconds = one.saved_s;
  for (std::size_t b = 0; b < backbone_on_host_.size(); ++b) {
    const std::int32_t copy = backbone_on_host_[b];
    const Placement& host = artifacts_.placements[at(copy)];
    if (copy == placement || host.artifact != one.artifact) continue;
    if (loaded_[at(copy)].present && !loaded_[at(copy)].ready_at) seconds -= host.saved_s;
  }
  loaded = {true, 1, start + from_seconds(seconds)};
  note(static_cast<std::uint64_t>(placement) * 31 + 1);
}

void GatewaySimulation::finish_loads() {
  for (std::size_t i = 0; i < loaded_.size(); ++i) {
    if (!loaded_[i].ready_at || *loaded_[i].ready_at > now_) continue;
    loaded_[i].ready_at.reset();
    use(static_cast<std::int32_t>(i), -1);
    for (const std::int32_t need : artifacts_.needs_of(artifacts_.placements[i])) use(need, -1);
  }
}

void GatewaySimulation::drop(std::int32_t placement) {
  CHECK(loaded_[at(placement)].present && loaded_[at(placement)].users == 0);
  loaded_[at(placement)] = {};
  note(static_cast<std::uint64_t>(placement) * 31 + 2);
}

std::vector<double> GatewaySimulation::artifact_rates() const {
  std::vector<double> rates(at(artifacts_.num_artifacts), 0);
  for (std::size_t f = 0; f < functions_.size(); ++f) {
    const double rate = functions_[f].arrivals.expected_rate(now_, std::chrono::seconds(10));
    const auto add = [&](std::int32_t placement) {
      rates[at(artifacts_.placements[at(placement)].artifact)] += rate;
    };
    add(worker_);
    add(backbone_on_host_[at(functions_[f].backbone)]);
    add(adapter_on_[f][0]);
  }
  return rates;
}

// Frees memory by the policy of offloading. False: not so much is idle.
bool GatewaySimulation::make_room(std::int32_t memory, std::int64_t bytes) {
  const std::int64_t free = free_bytes(memory);
  if (free >= bytes) return true;
  const std::vector<double> rates = artifact_rates();
  std::vector<OffloadItem> items;
  std::vector<std::int32_t> placements;
  std::vector<std::int32_t> item_of(loaded_.size(), -1);
  for (std::size_t i = 0; i < loaded_.size(); ++i) {
    const Placement& placement = artifacts_.placements[i];
    if (!loaded_[i].present || placement.memory != memory) continue;
    OffloadItem item;
    item.bytes = placement.bytes;
    item.value = rates[at(placement.artifact)] * placement.saved_s;
    item.in_use = loaded_[i].users > 0;
    for (const std::int32_t need : artifacts_.needs_of(placement)) {
      if (artifacts_.placements[at(need)].memory == memory) item.needs = item_of[at(need)];
    }
    for (const std::int32_t copy : backbone_on_host_) {
      const Placement& host = artifacts_.placements[at(copy)];
      if (memory == 0 || host.artifact != placement.artifact || loaded_[at(copy)].present) continue;
      item.value_after[2] = rates[at(placement.artifact)] * host.saved_s;
    }
    item_of[i] = static_cast<std::int32_t>(items.size());
    items.push_back(item);
    placements.push_back(static_cast<std::int32_t>(i));
  }
  const auto plan =
      offload_policy_.plan({items, bytes - free, {0, 0, memory == 0 ? 0 : free_bytes(0)}});
  if (!plan) return false;
  for (const OffloadMove& move : plan->moves) {
    const std::int32_t placement = placements[at(move.item)];
    drop(placement);
    ++report_.offloads;
    if (move.target != OffloadTarget::kHost) continue;
    for (const std::int32_t copy : backbone_on_host_) {
      if (artifacts_.placements[at(copy)].artifact != artifacts_.placements[at(placement)].artifact)
        continue;
      CHECK(free_bytes(0) >= artifacts_.placements[at(copy)].bytes);
      loaded_[at(copy)] = {true, 0, std::nullopt};
    }
  }
  CHECK(free_bytes(memory) >= bytes);
  return true;
}

void GatewaySimulation::preload() {
  std::vector<Residency> residency(loaded_.size(), Residency::kAbsent);
  std::vector<std::int64_t> idle(capacity_.size());
  for (std::size_t m = 0; m < idle.size(); ++m) idle[m] = free_bytes(static_cast<std::int32_t>(m));
  for (std::size_t i = 0; i < loaded_.size(); ++i) {
    if (!loaded_[i].present) continue;
    residency[i] = loaded_[i].users > 0 ? Residency::kInUse : Residency::kIdle;
    if (loaded_[i].users == 0)
      idle[at(artifacts_.placements[i].memory)] += artifacts_.placements[i].bytes;
  }
  const std::vector<double> rates = artifact_rates();
  const PreloadPlan plan = preload_policy_->plan({residency, rates, idle});
  for (const std::int32_t placement : plan.drop) drop(placement);
  for (const std::int32_t placement : plan.load) load(placement);
  report_.loads += std::ssize(plan.load);
}

// --- Instances.

std::array<std::int32_t, 3> GatewaySimulation::needs_of_instance(std::int32_t f,
                                                                 std::int32_t device) const {
  return {worker_, backbone_on_[at(functions_[at(f)].backbone)][at(device)],
          adapter_on_[at(f)][at(device)]};
}

// On the device where most of it is loaded; loads what is missing at once.
bool GatewaySimulation::start_instance(std::int32_t f) {
  std::vector<std::pair<std::int64_t, std::int32_t>> order;  // bytes to load, device
  for (std::int32_t d = 0; d < world_.devices; ++d) {
    std::int64_t missing = 0;
    for (const std::int32_t need : needs_of_instance(f, d)) {
      if (!loaded_[at(need)].present) missing += artifacts_.placements[at(need)].bytes;
    }
    order.emplace_back(missing, d);
  }
  std::ranges::sort(order);
  for (const auto& [missing, d] : order) {
    std::vector<std::int32_t> held;
    bool all = true;
    for (const std::int32_t need : needs_of_instance(f, d)) {
      const Placement& placement = artifacts_.placements[at(need)];
      if (!loaded_[at(need)].present) {
        all = make_room(placement.memory, placement.bytes);
        if (!all) break;
        load(need);
      }
      use(need, 1);
      held.push_back(need);
    }
    if (!all) {
      for (const std::int32_t need : held) use(need, -1);
      continue;
    }
    TimePoint ready = now_;
    for (const std::int32_t need : held) ready = std::max(ready, ready_time(need));
    instances_.push_back({f, d, ready + std::chrono::milliseconds(25), false});
    ++report_.starts;
    note(static_cast<std::uint64_t>(f) * 31 + 3);
    return true;
  }
  return false;
}

void GatewaySimulation::remove_instance(std::size_t index) {
  const Instance instance = instances_[index];
  for (const std::int32_t need : needs_of_instance(instance.function, instance.device)) {
    use(need, -1);
  }
  instances_.erase(instances_.begin() + static_cast<std::ptrdiff_t>(index));
  for (Turn& turn : turns_) {
    if (turn.instance > static_cast<std::int32_t>(index)) --turn.instance;
  }
  note(static_cast<std::uint64_t>(instance.function) * 31 + 4);
}

void GatewaySimulation::stop_idle_instances(std::int32_t f, std::int32_t count) {
  for (std::size_t i = instances_.size(); i-- > 0 && count > 0;) {
    const Instance& instance = instances_[i];
    if (instance.function != f || instance.has_turn || instance.ready_at > now_) continue;
    remove_instance(i);
    --count;
  }
}

void GatewaySimulation::scale_function(std::int32_t f) {
  Function& function = functions_[at(f)];
  std::int32_t ready = 0;
  std::int32_t all = 0;
  for (const Instance& instance : instances_) {
    if (instance.function != f) continue;
    ++all;
    if (instance.ready_at <= now_) ++ready;
  }
  const double concurrency = static_cast<double>(function.queue.size()) + function.running;
  function.scaler.record(now_, concurrency);
  const bool is_cold = all == 0 && !function.queue.empty();
  if (!is_cold && ticks_ % (2 * kTicksPerSecond) != 0) return;
  const std::int32_t wanted = function.scaler.decide(now_, ready).instances;
  for (; all < std::min(wanted, world_.devices); ++all) {
    if (!start_instance(f)) break;
  }
  if (wanted < ready) stop_idle_instances(f, ready - wanted);
}

void GatewaySimulation::kill_one() {
  if (instances_.empty() || random_.uniform() > world_.deaths_per_second / kTicksPerSecond) return;
  const std::size_t index = random_.below(instances_.size());
  for (Turn& turn : turns_) {
    if (turn.instance != static_cast<std::int32_t>(index)) continue;
    report_.failed += std::ssize(turn.requests);
    functions_[at(instances_[index].function)].running -=
        static_cast<std::int32_t>(turn.requests.size());
    turn = {};
  }
  remove_instance(index);
}

// --- Requests.

void GatewaySimulation::add_calls() {
  for (Function& function : functions_) {
    if (random_.uniform() < 0.1 / kTicksPerSecond) function.on = !function.on;
    if (!function.on || random_.uniform() > function.rate * to_seconds(kTick)) continue;
    const std::uint64_t burst = random_.below(20) == 0 ? 8 : 1;
    for (std::uint64_t i = 0; i < burst; ++i) {
      ++report_.calls;
      function.arrivals.add(now_);
      const auto waiting = static_cast<std::int32_t>(function.queue.size());
      const auto f = static_cast<std::int32_t>(&function - functions_.data());
      if (instance_for(f) < 0 && !function.scaler.may_wait(waiting)) {
        ++report_.crowded;
      } else {
        function.queue.push_back({now_, 50 + static_cast<std::int64_t>(random_.below(500))});
      }
    }
  }
}

// A ready instance, on a free device if there is one; else one that starts; -1: none.
std::int32_t GatewaySimulation::instance_for(std::int32_t f) const {
  std::int32_t best = -1;
  int best_rank = -1;
  for (std::size_t i = 0; i < instances_.size(); ++i) {
    const Instance& instance = instances_[i];
    if (instance.function != f) continue;
    const bool is_free = turns_[at(instance.device)].instance < 0;
    const int rank = (instance.ready_at <= now_ ? 2 : 0) + (is_free ? 1 : 0);
    if (rank > best_rank) best = static_cast<std::int32_t>(i);
    best_rank = std::max(best_rank, rank);
  }
  return best;
}

bool GatewaySimulation::begin_turn(std::int32_t f, std::int32_t device,
                                   const BatchDispatch& dispatch) {
  Function& function = functions_[at(f)];
  Turn& turn = turns_[at(device)];
  CHECK(turn.instance < 0);
  const std::int64_t kv = kKvBytes * dispatch.requests;
  if (!make_room(device + 1, kv)) return false;
  turn.instance = instance_for(f);
  CHECK(instances_[at(turn.instance)].device == device);
  instances_[at(turn.instance)].has_turn = true;
  const auto first = function.queue.begin() + dispatch.first;
  turn.requests.assign(first, first + dispatch.requests);
  function.queue.erase(first, first + dispatch.requests);
  std::int64_t tokens = 0;
  for (const WaitingRequest& request : turn.requests) tokens += request.tokens;
  turn.ends_at = now_ + from_seconds(kPrefill.seconds(tokens));
  turn.kv_bytes = kv;
  function.running += dispatch.requests;
  note(static_cast<std::uint64_t>(f) * 31 + 5 +
       static_cast<std::uint64_t>(dispatch.requests) * 4096);
  return true;
}

void GatewaySimulation::dispatch() {
  std::vector<WaitingBatch> batches;
  std::vector<std::int32_t> turns(turns_.size());
  for (std::size_t d = 0; d < turns_.size(); ++d) turns[d] = turns_[d].instance >= 0 ? 1 : 0;
  for (std::int32_t f = 0; f < world_.functions; ++f) {
    const Function& function = functions_[at(f)];
    if (function.queue.empty()) continue;
    WaitingBatch batch{f, 0, function.slo, kPrefill, line_of(kPrefill, 300), Duration(1), {}};
    const std::int32_t instance = instance_for(f);
    if (instance >= 0) {
      batch.device = instances_[at(instance)].device;
      batch.ready_in = std::max(instances_[at(instance)].ready_at - now_, Duration(0));
    }
    batch.requests = function.queue;
    batches.push_back(batch);
  }
  const BatchingPlan plan = plan_batches({now_, world_.mode, batches, turns});
  for (const BatchDispatch& dispatch : plan.dispatches) {
    const WaitingBatch& batch = batches[at(dispatch.batch)];
    if (turns_[at(batch.device)].instance >= 0) continue;  // one turn a device here in both modes
    begin_turn(batch.function, batch.device, dispatch);
  }
  // Refused requests stand before all that were dispatched.
  for (std::size_t i = plan.refusals.size(); i-- > 0;) {
    Function& function = functions_[at(batches[at(plan.refusals[i].batch)].function)];
    function.queue.erase(function.queue.begin() + plan.refusals[i].request);
    ++report_.late;
    note(6);
  }
}

void GatewaySimulation::finish_turns() {
  for (Turn& turn : turns_) {
    if (turn.instance < 0 || turn.ends_at > now_) continue;
    Instance& instance = instances_[at(turn.instance)];
    instance.has_turn = false;
    functions_[at(instance.function)].running -= static_cast<std::int32_t>(turn.requests.size());
    for (const WaitingRequest& request : turn.requests) {
      ttft_ms_.push_back(to_milliseconds(turn.ends_at - request.arrival));
    }
    report_.answered += std::ssize(turn.requests);
    turn = {};
  }
}

// --- Time.

void GatewaySimulation::scale() {
  for (std::int32_t f = 0; f < world_.functions; ++f) scale_function(f);
}

void GatewaySimulation::tick(bool calls) {
  finish_loads();
  finish_turns();
  kill_one();
  if (calls) add_calls();
  scale();
  dispatch();
  if (world_.preload && ticks_ % kTicksPerSecond == 0) preload();
  check();
  meter();
  if (ticks_ % (5 * kTicksPerSecond) == 0) check_bill();
  now_ = now_ + kTick;
  ++ticks_;
}

GatewayReport GatewaySimulation::run() {
  const std::int64_t last = world_.seconds * kTicksPerSecond;
  for (std::int64_t i = 0; i < last; ++i) tick(true);
  // An answer takes at most its SLO and a turn; then instances are idle for 5 s, and 2 s pass
  // between decisions.
  for (std::int64_t i = 0; i < 30 * kTicksPerSecond; ++i) tick(false);
  CHECK(instances_.empty());
  for (const Function& function : functions_)
    CHECK(function.queue.empty() && function.running == 0);
  for (const Loaded& one : loaded_) CHECK(one.users == 0);
  CHECK(report_.calls == report_.answered + report_.late + report_.crowded + report_.failed);
  check_bill();
  std::ranges::sort(ttft_ms_);
  if (!ttft_ms_.empty()) {
    report_.p50_ms = ttft_ms_[ttft_ms_.size() / 2];
    report_.p99_ms = ttft_ms_[ttft_ms_.size() * 99 / 100];
  }
  return report_;
}

// --- Rules.

void GatewaySimulation::check() const {
  for (std::int32_t m = 0; m < artifacts_.num_memories; ++m) CHECK(free_bytes(m) >= 0);
  for (std::size_t i = 0; i < loaded_.size(); ++i) {
    if (!loaded_[i].present) continue;
    for (const std::int32_t need : artifacts_.needs_of(artifacts_.placements[i])) {
      CHECK(loaded_[at(need)].present);
    }
  }
  for (const Instance& instance : instances_) {
    for (const std::int32_t need : needs_of_instance(instance.function, instance.device)) {
      CHECK(loaded_[at(need)].present && loaded_[at(need)].users > 0);
    }
  }
  // The bound: a request waits for at most its SLO; then it is refused.
  for (const Function& function : functions_) {
    for (const WaitingRequest& request : function.queue) {
      CHECK(now_ - request.arrival <= function.slo);
    }
  }
}

void GatewaySimulation::meter() {
  std::vector<std::int64_t> bytes(functions_.size(), 0);
  std::vector<std::int32_t> cores(functions_.size(), 0);
  for (std::size_t f = 0; f < functions_.size(); ++f) {
    for (const std::int32_t placement : adapter_on_[f]) {
      if (loaded_[at(placement)].present) bytes[f] += artifacts_.placements[at(placement)].bytes;
    }
  }
  for (const Turn& turn : turns_) {
    if (turn.instance < 0) continue;
    const std::size_t f = at(instances_[at(turn.instance)].function);
    bytes[f] += turn.kv_bytes;
    cores[f] += kCoresPerTurn;
  }
  // Everything to zero first, at the same time, so that the machine's sums hold in between.
  for (std::int32_t f = 0; f < world_.functions; ++f) {
    meter_.set_bytes(now_, f, MemoryKind::kDevice, 0);
    meter_.set_cores(now_, f, 0);
  }
  for (std::size_t b = 0; b < share_of_.size(); ++b) {
    for (std::size_t d = 0; d < share_of_[b].size(); ++d) {
      if (!loaded_[at(backbone_on_[b][d])].present) {
        meter_.set_share_bytes(now_, share_of_[b][d], 0);
      }
    }
  }
  for (std::size_t b = 0; b < share_of_.size(); ++b) {
    for (std::size_t d = 0; d < share_of_[b].size(); ++d) {
      const std::int32_t placement = backbone_on_[b][d];
      meter_.set_share_bytes(
          now_, share_of_[b][d],
          loaded_[at(placement)].present ? artifacts_.placements[at(placement)].bytes : 0);
      for (std::size_t f = 0; f < functions_.size(); ++f) {
        const bool joins = std::ranges::any_of(instances_, [&](const Instance& instance) {
          return at(instance.function) == f && at(instance.device) == d &&
                 at(functions_[f].backbone) == b;
        });
        if (joins == joined_[f][b][d]) continue;
        joined_[f][b][d] = joins;
        const auto function = static_cast<std::int32_t>(f);
        joins ? meter_.join(now_, function, share_of_[b][d])
              : meter_.leave(now_, function, share_of_[b][d]);
      }
    }
  }
  for (std::int32_t f = 0; f < world_.functions; ++f) {
    const Function& function = functions_[at(f)];
    meter_.set_bytes(now_, f, MemoryKind::kDevice, bytes[at(f)]);
    meter_.set_cores(now_, f, cores[at(f)]);
    meter_.set_active(now_, f, !function.queue.empty() || function.running > 0);
  }
}

void GatewaySimulation::check_bill() {
  const MachineCapacity machine = machine_of(world_);
  FunctionUsage sum = meter_.platform(now_);
  for (std::int32_t f = 0; f < world_.functions; ++f) {
    const FunctionUsage usage = meter_.of(f, now_);
    sum.core_ns += usage.core_ns;
    for (std::size_t k = 0; k < kMemoryKinds; ++k) {
      sum.memory[k].idle += usage.memory[k].active + usage.memory[k].idle;
    }
  }
  const Amount ns = now_.since_start.count();
  CHECK(sum.core_ns == machine.cores * ns);
  for (std::size_t k = 0; k < kMemoryKinds; ++k) {
    CHECK(sum.memory[k].idle == machine.bytes[k] * ns);
  }
}

}  // namespace sluice::test
