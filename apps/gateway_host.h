// GatewayHost: the InstanceHost of `sluice gateway`: backbones in shared memory, and function
// processes on them. A thread of its own does what takes long, job by job: it writes backbones and
// ends processes. Another one reads adapters before their calls.
// Owner: the command. Threads: the event loop's; models() from any once load_all() has succeeded.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agents/agent_hub.h"
#include "apps/isolated_model.h"
#include "apps/serve_settings.h"
#include "apps/startup_loads.h"
#include "base/clock.h"
#include "base/job_thread.h"
#include "base/result.h"
#include "base/work_pace.h"
#include "function/tenant_loops.h"
#include "function/turn_service.h"
#include "gateway/function_models.h"
#include "gateway/instance_host.h"
#include "http/event_loop.h"
#include "serverless/functions_file.h"

namespace sluice {

class GatewayHost final : public InstanceHost {
 public:
  // `wake`: of every instance. REQUIRES: loop, turns and clock outlive it, and `wake` may be called
  // until the end of stop().
  GatewayHost(const ServeSettings& settings, const FunctionModels& models, http::EventLoop& loop,
              TurnService& turns, const Clock& clock, std::function<void()> wake);
  ~GatewayHost() override;  // stops
  GatewayHost(const GatewayHost&) = delete;
  GatewayHost& operator=(const GatewayHost&) = delete;

  // Loads every backbone once, so that an error shows at the start and not at a call. The next one
  // makes those before leave if it does not fit beside them. `path`: the functions file, which
  // errors name. `done` runs on the loop. Call once.
  void load_all(const std::vector<BackboneSpec>& backbones, const std::string& path,
                std::function<void(Status)> done);
  // Where load_backbone() reports its end, on the loop.
  void on_loaded(std::function<void(std::int32_t, Status)> task) { loaded_ = std::move(task); }
  // Instances may run on agents, too. REQUIRES: `agents` outlives this.
  void set_agents(AgentHub& agents) { agents_ = &agents; }
  // Waits until all jobs are done, except for loads of adapters, which end. A second call does
  // nothing.
  void stop();

  const IsolatedModel& model(std::int32_t backbone) const { return at(backbone).model; }
  // At the end of load_all().
  bool is_loaded(std::int32_t backbone) const {
    return startup_loads_.is_loaded(at(backbone).name);
  }
  // The time that writing its weights took.
  Duration load_time(std::int32_t backbone) const { return at(backbone).load_time; }

  void load_backbone(std::int32_t backbone) override;
  void unload_backbone(std::int32_t backbone) override;
  std::int64_t free_bytes() const override;
  void keep_workers(std::int32_t backbone, bool keep) override;
  std::int64_t worker_bytes(std::int32_t backbone) override;
  std::optional<AdapterState> adapter(std::int32_t function) const override {
    return models_.adapter(function);
  }
  void load_adapter(std::int32_t function) override;
  void unload_adapter(std::int32_t function) override { models_.unload_adapter(function); }
  std::unique_ptr<TenantLoop> start_instance(std::int32_t machine, std::int32_t backbone,
                                             std::int32_t adapter,
                                             const std::string& tenant) override;
  // Machines are agents by their numbers.
  std::vector<RemoteMachine> machines() const override;
  std::optional<Duration> adapter_copy(std::int32_t machine, std::int32_t backbone,
                                       std::int32_t function) const override;
  void plan_machine(std::int32_t machine, const std::vector<RemoteHolding>& plan) override;
  void end_instance(std::unique_ptr<TenantLoop> instance) override;
  std::int64_t ending_kv_bytes() const override { return ending_kv_bytes_.load(); }

 private:
  struct Loaded {
    std::string name;
    IsolatedModel model;
    TenantLoops::MakeLoop make;
    Duration load_time{0};
    std::int64_t worker_bytes = 0;  // of one, as far as was seen
  };

  Loaded& at(std::int32_t backbone) const {
    return *backbones_[static_cast<std::size_t>(backbone)];
  }
  Status load(const BackboneSpec& spec);

  const ServeSettings& settings_;
  const FunctionModels& models_;
  http::EventLoop& loop_;
  TurnService& turns_;
  const Clock& clock_;
  const std::function<void()> wake_;
  AgentHub* agents_ = nullptr;  // null: there are none
  std::function<void(std::int32_t, Status)> loaded_;
  // The thread adds to these in load_all(); the loop reads them after that.
  std::vector<std::unique_ptr<Loaded>> backbones_;
  StartupLoads startup_loads_;

  std::atomic<std::int64_t> ending_kv_bytes_{0};

  Pause pause_;  // of `adapter_jobs_`
  // Last: they end before what they use.
  JobThread jobs_;
  JobThread adapter_jobs_;  // they rest while functions compute
};

}  // namespace sluice
