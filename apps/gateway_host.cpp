#include "apps/gateway_host.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/log.h"
#include "device/cpu/host_memory.h"
#include "engine/startup_timeline.h"

namespace sluice {
namespace {

// The bytes of a worker before one was seen.
constexpr std::int64_t kSomeWorkerBytes = std::int64_t{16} << 20;

}  // namespace

GatewayHost::GatewayHost(const ServeSettings& settings, const FunctionModels& models,
                         http::EventLoop& loop, TurnService& turns, const Clock& clock,
                         std::function<void()> wake)
    : settings_(settings),
      models_(models),
      loop_(loop),
      turns_(turns),
      clock_(clock),
      wake_(std::move(wake)) {}

GatewayHost::~GatewayHost() { stop(); }

void GatewayHost::stop() {
  pause_.stop();
  adapter_jobs_.stop();
  jobs_.stop();
}

void GatewayHost::load_all(const std::vector<BackboneSpec>& backbones, const std::string& path,
                           std::function<void(Status)> done) {
  jobs_.add([this, backbones, path, done = std::move(done)] {
    Status status;
    for (const BackboneSpec& spec : backbones) {
      status = startup_loads_.load(
          spec.name, [this, &spec] { return load(spec); },
          [this, i = std::ssize(backbones_)] { at(static_cast<std::int32_t>(i)).model.unload(); });
      if (!status) {
        status = unloadable_backbone(path, spec, std::move(status).error());
        break;
      }
    }
    loop_.post([done, status] { done(status); });
  });
}

Status GatewayHost::load(const BackboneSpec& spec) {
  auto loaded = std::make_unique<Loaded>();
  loaded->name = spec.name;
  StartupTimeline timeline(clock_);
  FunctionSettings functions = *settings_.functions;
  functions.warm_workers = 0;  // keep_workers() says when there are any
  ASSIGN_OR_RETURN(loaded->make, loaded->model.load(spec.directory, spec.name, settings_.engine,
                                                    functions, settings_.queue.max_requests, turns_,
                                                    clock_, timeline, ServedEngineOptions()));
  const auto spans = timeline.spans();
  const auto written = std::ranges::find(spans, "backbone", &StartupSpan::name);
  if (written != spans.end()) loaded->load_time = written->duration;
  backbones_.push_back(std::move(loaded));
  return {};
}

void GatewayHost::load_backbone(std::int32_t backbone) {
  jobs_.add([this, backbone] {
    const Status status = at(backbone).model.reload();
    loop_.post([this, backbone, status] { loaded_(backbone, status); });
  });
}

void GatewayHost::unload_backbone(std::int32_t backbone) {
  jobs_.add([this, backbone] { at(backbone).model.unload(); });
}

void GatewayHost::load_adapter(std::int32_t function) {
  adapter_jobs_.add([this, function] {
    const ThreadCpuClock worked;
    WorkPace pace(
        {}, worked, [this] { return turns_.is_busy(); },
        [this](Duration time) { return pause_.wait(time); });
    const Status status = models_.load_adapter(function, pace.check());
    if (!status && status.error().code != ErrorCode::kCancelled) {
      log_error("an adapter was not loaded before its call: " + status.error().message);
    }
  });
}

void GatewayHost::keep_workers(std::int32_t backbone, bool keep) {
  jobs_.add([this, backbone, count = keep ? settings_.functions->warm_workers : 0] {
    at(backbone).model.warm_workers().keep(count);
  });
}

std::int64_t GatewayHost::worker_bytes(std::int32_t backbone) {
  Loaded& one = at(backbone);
  one.worker_bytes = std::max(one.worker_bytes, one.model.warm_workers().largest_bytes());
  return settings_.functions->warm_workers *
         (one.worker_bytes > 0 ? one.worker_bytes : kSomeWorkerBytes);
}

std::int64_t GatewayHost::free_bytes() const {
  const auto memory = read_host_memory("/");
  return memory ? memory->spare_host_bytes() : 0;
}

std::unique_ptr<TenantLoop> GatewayHost::start_instance(std::int32_t machine, std::int32_t backbone,
                                                        std::int32_t adapter,
                                                        const std::string& tenant) {
  if (machine > 0) {
    const SharedAdapters& adapters = at(backbone).model.model().adapters;
    return agents_->start(machine, backbone, adapter < 0 ? nullptr : adapters->content(adapter),
                          tenant, wake_);
  }
  auto instance = at(backbone).make(adapter, wake_);
  instance->set_tenant(tenant);
  return instance;
}

std::vector<RemoteMachine> GatewayHost::machines() const {
  std::vector<RemoteMachine> machines;
  if (agents_ == nullptr) return machines;
  for (const AgentView& agent : agents_->agents()) {
    RemoteMachine& machine = machines.emplace_back();
    machine.open = agent.open;
    machine.places = agent.places;
    machine.free_bytes = agent.free_bytes;
    for (std::size_t b = 0; b < backbones_.size(); ++b) {
      RemoteBackbone& one = machine.backbones.emplace_back();
      if (b >= agent.backbones.size()) continue;
      const AgentHolding& held = agent.holds[b];
      one.is_possible = agent.backbones[b];
      one.is_loaded = held.load == BackboneLoad::kLoaded;
      one.is_loading = held.load == BackboneLoad::kLoading;
      one.workers = held.workers > 0;
      one.worker_bytes = held.worker_bytes;
    }
  }
  return machines;
}

std::optional<Duration> GatewayHost::adapter_copy(std::int32_t machine, std::int32_t backbone,
                                                  std::int32_t function) const {
  const SharedContent content = models_.adapter_content(function);
  if (content == nullptr) return std::nullopt;
  const AgentView& agent = agents_->agents()[static_cast<std::size_t>(machine) - 1];
  if (static_cast<std::size_t>(backbone) >= agent.adapters.size()) return std::nullopt;
  const auto& there = agent.adapters[static_cast<std::size_t>(backbone)];
  const auto found = there.find(content->image.digest);
  if (found == there.end()) return std::nullopt;
  return found->second;
}

void GatewayHost::plan_machine(std::int32_t machine, const std::vector<RemoteHolding>& plan) {
  std::map<std::int32_t, HubPlan> plan_of;
  for (std::int32_t b = 0; b < std::ssize(plan); ++b) {
    const RemoteHolding& held = plan[static_cast<std::size_t>(b)];
    if (!held.weights) continue;
    HubPlan& one = plan_of[b];
    one.workers = held.workers ? settings_.functions->warm_workers : 0;
    for (const std::int32_t function : held.adapters) {
      if (auto content = models_.adapter_content(function)) {
        one.adapters.push_back(std::move(content));
      }
    }
  }
  agents_->plan(machine, plan_of);
}

// The destructor of a process of this machine waits for its end. One on an agent is told to end.
void GatewayHost::end_instance(std::unique_ptr<TenantLoop> instance) {
  if (dynamic_cast<RemoteLoop*>(instance.get()) != nullptr) return;
  // Shared because std::function copies its captures.
  std::shared_ptr<TenantLoop> shared = std::move(instance);
  // A loop that ends cannot take more.
  const std::int64_t held = shared->kv().held;
  ending_kv_bytes_ += held;
  jobs_.add([this, shared = std::move(shared), held]() mutable {
    shared.reset();
    ending_kv_bytes_ -= held;
  });
}

}  // namespace sluice
