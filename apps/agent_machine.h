// AgentMachine: the AgentHost of `sluice agent`: the backbones of its gateway in shared memory, and
// function processes on them. A thread of its own loads backbones and ends processes, in the order
// of the calls; another one takes adapters into memory, and a third one runs other jobs. Owner: the
// command. Threads: the event loop's; load() before the loop runs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agents/agent_functions.h"
#include "apps/isolated_model.h"
#include "apps/serve_settings.h"
#include "apps/startup_loads.h"
#include "base/clock.h"
#include "base/job_thread.h"
#include "base/result.h"
#include "function/turn_service.h"
#include "http/event_loop.h"

namespace sluice {

class AgentMachine final : public AgentHost {
 public:
  // REQUIRES: all outlive it.
  AgentMachine(const ServeSettings& settings, http::EventLoop& loop, TurnService& turns,
               const Clock& clock);
  ~AgentMachine() override;
  AgentMachine(const AgentMachine&) = delete;
  AgentMachine& operator=(const AgentMachine&) = delete;

  // Loads the gateway's backbone from `directory`. Errors also if its content is another one. If it
  // does not fit beside those that are loaded, these leave.
  Status load(const GatewayBackbone& backbone, const std::string& directory);
  // After the last load().
  bool is_loaded(const std::string& backbone) const { return startup_loads_.is_loaded(backbone); }
  // All that were loaded.
  std::vector<AgentBackbone> backbones() const;

  void load_backbone(const std::string& backbone, std::function<void(Status)> done) override;
  void unload_backbone(const std::string& backbone) override;
  void keep_workers(const std::string& backbone, std::int32_t count) override;
  std::int64_t worker_bytes(const std::string& backbone) override;
  void add_adapter(const std::string& backbone, const std::string& digest, std::string bytes,
                   std::function<void(Status)> done) override;
  void remove_adapter(const std::string& backbone, const std::string& digest) override;
  Result<Started> start(const std::string& backbone, const std::string& digest,
                        const std::string& tenant, std::function<void()> wake) override;
  void end(std::unique_ptr<TenantLoop> loop, std::function<void()> done) override;
  void run_aside(std::function<Status()> job, std::function<void(Status)> done) override;
  std::int64_t free_bytes() const override;

 private:
  struct Loaded {
    IsolatedModel model;
    TenantLoops::MakeLoop make;
    std::string digest;
    std::int64_t worker_bytes = 0;  // of the largest warm worker, as far as was seen
  };

  Status load_one(const GatewayBackbone& backbone, const std::string& directory);
  Result<Loaded*> find(const std::string& backbone) const;
  static Status add(const Loaded& loaded, const std::string& digest, const std::string& bytes);

  const ServeSettings& settings_;
  http::EventLoop& loop_;
  TurnService& turns_;
  const Clock& clock_;
  std::map<std::string, std::unique_ptr<Loaded>> backbones_;
  StartupLoads startup_loads_;
  // Last: they end before what they use.
  JobThread jobs_;
  JobThread adapter_jobs_;
  JobThread other_jobs_;
};

}  // namespace sluice
