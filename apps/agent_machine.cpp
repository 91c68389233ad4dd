#include "apps/agent_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/sha256.h"
#include "device/cpu/host_memory.h"
#include "engine/startup_timeline.h"

namespace sluice {

AgentMachine::AgentMachine(const ServeSettings& settings, http::EventLoop& loop, TurnService& turns,
                           const Clock& clock)
    : settings_(settings), loop_(loop), turns_(turns), clock_(clock) {}

AgentMachine::~AgentMachine() {
  other_jobs_.stop();
  adapter_jobs_.stop();
  jobs_.stop();
}

Status AgentMachine::load(const GatewayBackbone& backbone, const std::string& directory) {
  return startup_loads_.load(
      backbone.name, [&] { return load_one(backbone, directory); },
      [this, name = backbone.name] { backbones_.at(name)->model.unload(); });
}

Status AgentMachine::load_one(const GatewayBackbone& backbone, const std::string& directory) {
  auto loaded = std::make_unique<Loaded>();
  StartupTimeline timeline(clock_);
  FunctionSettings functions = *settings_.functions;
  functions.warm_workers = 0;
  ASSIGN_OR_RETURN(loaded->make, loaded->model.load(directory, backbone.name, settings_.engine,
                                                    functions, settings_.queue.max_requests, turns_,
                                                    clock_, timeline, ServedEngineOptions()));
  loaded->digest = to_hex(loaded->model.digest());
  if (loaded->digest != backbone.digest) {
    return invalid_argument(fmt::format(
        "{}: the checkpoint is another one than the gateway's (digest {}, the gateway's has {})",
        directory, loaded->digest, backbone.digest));
  }
  if (loaded->model.cache_config().block_size != backbone.block_size) {
    return invalid_argument(fmt::format("--block-size must be {}, as at the gateway, not {}",
                                        backbone.block_size,
                                        loaded->model.cache_config().block_size));
  }
  backbones_[backbone.name] = std::move(loaded);
  return {};
}

std::vector<AgentBackbone> AgentMachine::backbones() const {
  std::vector<AgentBackbone> all;
  for (const auto& [name, loaded] : backbones_) all.push_back({name, loaded->digest});
  return all;
}

Result<AgentMachine::Loaded*> AgentMachine::find(const std::string& backbone) const {
  const auto found = backbones_.find(backbone);
  if (found != backbones_.end()) return found->second.get();
  return not_found(fmt::format("the agent has no backbone '{}'", backbone));
}

void AgentMachine::load_backbone(const std::string& backbone, std::function<void(Status)> done) {
  Loaded& loaded = *backbones_.at(backbone);
  jobs_.add([this, &loaded, done = std::move(done)] {
    loop_.post([done, status = loaded.model.reload()] { done(status); });
  });
}

void AgentMachine::unload_backbone(const std::string& backbone) {
  jobs_.add([&loaded = *backbones_.at(backbone)] { loaded.model.unload(); });
}

void AgentMachine::keep_workers(const std::string& backbone, std::int32_t count) {
  jobs_.add(
      [&loaded = *backbones_.at(backbone), count] { loaded.model.warm_workers().keep(count); });
}

std::int64_t AgentMachine::worker_bytes(const std::string& backbone) {
  Loaded& loaded = *backbones_.at(backbone);
  loaded.worker_bytes = std::max(loaded.worker_bytes, loaded.model.warm_workers().largest_bytes());
  return loaded.worker_bytes;
}

Status AgentMachine::add(const Loaded& loaded, const std::string& digest,
                         const std::string& bytes) {
  const SharedAdapters& adapters = loaded.model.model().adapters;
  if (adapters == nullptr) return unsupported("the agent's model takes no adapters");
  ASSIGN_OR_RETURN(SealedAdapter sealed,
                   seal_adapter_bytes(std::as_bytes(std::span(bytes)), adapters->config(),
                                      adapters->format().dtype));
  if (sealed.image.digest != digest) {
    return invalid_argument("the gateway has sent another adapter than it named");
  }
  if (sealed.image.max_rank > adapters->format().max_rank) {
    return unsupported(fmt::format("the adapter has rank {}, the agent's limit is {}",
                                   sealed.image.max_rank, adapters->format().max_rank));
  }
  RETURN_IF_ERROR(adapters->add(digest, "the gateway", std::move(sealed)));
  return {};
}

void AgentMachine::add_adapter(const std::string& backbone, const std::string& digest,
                               std::string bytes, std::function<void(Status)> done) {
  adapter_jobs_.add([this, &loaded = *backbones_.at(backbone), digest, bytes = std::move(bytes),
                     done = std::move(done)] {
    loop_.post([done, status = add(loaded, digest, bytes)] { done(status); });
  });
}

void AgentMachine::remove_adapter(const std::string& backbone, const std::string& digest) {
  backbones_.at(backbone)->model.model().adapters->remove(digest);
}

Result<AgentHost::Started> AgentMachine::start(const std::string& backbone,
                                               const std::string& digest, const std::string& tenant,
                                               std::function<void()> wake) {
  ASSIGN_OR_RETURN(Loaded* const loaded, find(backbone));
  Started started;
  SharedAdapter adapter;
  if (!digest.empty()) {
    adapter = loaded->model.model().adapters->find(digest);
    if (adapter == nullptr) return not_found("the agent lacks the adapter");
    started.adapter = adapter->content->index;
  }
  started.vocab_size = loaded->model.checks().vocab_size;
  started.loop = loaded->make(started.adapter, std::move(wake));
  started.loop->set_tenant(tenant);
  return started;
}

// Its destructor waits for the end of the process.
void AgentMachine::end(std::unique_ptr<TenantLoop> loop, std::function<void()> done) {
  // Shared because std::function copies its captures.
  std::shared_ptr<TenantLoop> shared = std::move(loop);
  jobs_.add([this, shared = std::move(shared), done = std::move(done)]() mutable {
    shared.reset();
    loop_.post(std::move(done));
  });
}

void AgentMachine::run_aside(std::function<Status()> job, std::function<void(Status)> done) {
  other_jobs_.add([this, job = std::move(job), done = std::move(done)] {
    loop_.post([done, status = job()] { done(status); });
  });
}

std::int64_t AgentMachine::free_bytes() const {
  const auto memory = read_host_memory("/");
  return memory ? memory->spare_host_bytes() : 0;
}

}  // namespace sluice
