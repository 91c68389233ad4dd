// AgentFunctions: the functions that run on an agent, by the gateway's commands. Each is a
// TenantLoop of the host; what they say goes out as outputs.
//
// Backbones are in memory by the gateway's plan, and while an instance is on them. An instance
// whose backbone is absent loads it first. A backbone that an instance uses neither moves nor
// leaves; it leaves when its last instance has ended, unless the plan has it. The same holds for
// adapters, which leave with their backbone. Planned ones come one at a time, behind those that
// instances wait for. If an instance's backbone does not fit into memory, all that nothing uses is
// given back, and the load is tried once more.
//
// Preparing a vocabulary or a grammar takes too long for the loop, so another thread does it.
// Meanwhile the frames that follow it to its instance wait, in their order.
//
// Times in requests are the gateway's. The difference of the clocks is the smallest that a command
// has shown, so it is off by the shortest way of a command.
//
// Owner: the command. Threads: the event loop's only. REQUIRES: host and clock outlive it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agents/agent_frames.h"
#include "agents/agent_message.h"
#include "base/clock.h"
#include "base/result.h"
#include "function/divided_loops.h"
#include "function/function_grammars.h"
#include "function/tenant_loop.h"

namespace sluice {

// The machine of an agent; tests have one without processes. Threads: the event loop's. No call
// blocks.
class AgentHost {
 public:
  struct Started {
    std::unique_ptr<TenantLoop> loop;
    std::int32_t adapter = -1;  // as its requests must name it
    std::int32_t vocab_size = 0;
  };

  virtual ~AgentHost() = default;
  // Loads the weights of a backbone that has no instance and is not loaded, then runs `done` on the
  // loop.
  virtual void load_backbone(const std::string& backbone, std::function<void(Status)> done) = 0;
  // Gives its memory back, and ends its warm workers. REQUIRES: it is loaded, and its instances
  // were given to end().
  virtual void unload_backbone(const std::string& backbone) = 0;
  // So many warm workers from now on. REQUIRES: it is loaded.
  virtual void keep_workers(const std::string& backbone, std::int32_t count) = 0;
  // Memory of its largest warm worker, as far as was seen; 0: none was.
  virtual std::int64_t worker_bytes(const std::string& backbone) = 0;
  // Takes a sealed adapter into memory, then runs `done` on the loop.
  virtual void add_adapter(const std::string& backbone, const std::string& digest,
                           std::string bytes, std::function<void(Status)> done) = 0;
  // Instances with it go on. REQUIRES: it was added.
  virtual void remove_adapter(const std::string& backbone, const std::string& digest) = 0;
  // REQUIRES: the backbone is loaded; the adapter was added, or `digest` is empty. `wake`: any
  // thread.
  virtual Result<Started> start(const std::string& backbone, const std::string& digest,
                                const std::string& tenant, std::function<void()> wake) = 0;
  // Ends its process, then runs `done` on the loop.
  virtual void end(std::unique_ptr<TenantLoop> loop, std::function<void()> done) = 0;
  // Runs `job` on another thread, then `done` on the loop.
  virtual void run_aside(std::function<Status()> job, std::function<void(Status)> done) = 0;
  // Memory that backbones may still take.
  virtual std::int64_t free_bytes() const = 0;
};

class AgentFunctions final : public DividedKv {
 public:
  // REQUIRES: none of them calls back at once.
  struct Calls {
    std::function<void(AgentOutput)> output;
    // Asks for the bytes of an adapter; adapter_came() follows.
    std::function<void(const std::string& digest)> fetch_adapter;
    std::function<void()> wake;  // any thread; collect() is to follow on the loop
    // The gateway has broken the rules with a frame that was already taken: end the session.
    std::function<void(const Error& error)> broken;
  };

  AgentFunctions(AgentHost& host, const Clock& clock, std::int32_t max_functions);
  // REQUIRES: before the first command.
  void set_calls(Calls calls) { calls_ = std::move(calls); }

  // A backbone, loaded or not. REQUIRES: before the first command.
  void add_backbone(const std::string& name, bool loaded);

  // An error: the gateway has broken the rules; end the session.
  Status handle(AgentCommand command);
  void adapter_came(const std::string& digest, const Result<std::string>& bytes);
  // Passes on what the functions have said.
  void collect();
  // Ends all; `done` runs once no process is left. The next session's clock is another one.
  void end_all(std::function<void()> done);

  std::vector<AgentInstance> uses() const;
  std::vector<AgentHolding> holdings() const;
  // Grows with each backbone that comes or leaves, or begins to come.
  std::uint64_t load_changes() const { return load_changes_; }
  // kMaxAgentAdapters at most.
  std::vector<AgentAdapter> adapters() const;
  bool empty() const { return instances_.empty() && ending_ == 0; }

  bool serves() const override { return true; }
  std::vector<Kv> kv(std::int64_t& ending) const override;
  void limit_kv(std::uint64_t loop, std::int64_t bytes) override;

 private:
  struct Backbone {
    BackboneLoad load = BackboneLoad::kLoaded;
    std::int32_t workers = 0;  // that are kept
    bool made_room = false;    // for the load under way
    // In memory, by digest, with the time that each took to come.
    std::map<std::string, Duration> adapters = {};
  };
  // An adapter on its way: backbone and digest.
  using Coming = std::pair<std::string, std::string>;
  struct Way {
    TimePoint since;
    bool came = false;  // from the gateway; the host takes it into memory
  };
  struct Instance {
    AgentCommand start;
    // Null: its backbone or its adapter comes, or it never started.
    std::unique_ptr<TenantLoop> loop;
    std::uint64_t number = 0;  // of the loop; the gateway's numbers come again in a later session
    std::int32_t adapter = -1;
    std::int32_t vocab_size = 0;
    // Shared: a job that prepares some of it outlives the instance. The loop leaves it alone
    // meanwhile.
    std::shared_ptr<FunctionGrammars> grammars = std::make_shared<FunctionGrammars>();
    bool prepares = false;
    std::deque<ToFunction> waiting;  // frames that came meanwhile
    EngineState said = EngineState::kLoading;
  };

  Status start(AgentCommand command);
  void load(const std::string& name, Backbone& backbone);
  void loaded(const std::string& name, const Status& status);
  void unload(const std::string& name, Backbone& backbone);
  // Gives back all that nothing uses, until the next plan. False: there is nothing.
  bool make_room();
  // The backbone is there.
  void get_adapter(std::uint64_t id, Instance& instance);
  void fetch(const std::string& backbone, const std::string& digest);
  void adapter_added(const Coming& adapter, Duration took, const Status& status);
  // It has not ended or failed, and its process has not started.
  static bool waits(const Instance& instance) {
    return instance.loop == nullptr && instance.said != EngineState::kFailed;
  }
  // Whether an instance is on it, or is to be.
  bool is_used(const std::string& backbone) const;
  bool is_used(const std::string& backbone, const std::string& digest) const;
  Status take_plan(std::vector<PlannedBackbone> plan);
  PlannedBackbone* planned(const std::string& backbone);
  bool is_planned(const std::string& backbone, const std::string& digest);
  // Loads and unloads as the last plan says.
  void follow_plan();
  void follow_adapters(const std::string& name, Backbone& backbone);
  void fetch_planned();
  void begin(std::uint64_t id, Instance& instance);
  void fail(std::uint64_t id, const Error& error);
  Status pass(Instance& instance, std::uint64_t id, ToFunction frame);
  void prepare(Instance& instance, std::uint64_t id, std::function<Status(FunctionGrammars&)> work);
  void prepared(std::uint64_t id, const FunctionGrammars* grammars, const Status& status);
  Status submit(Instance& instance, std::uint64_t id, RequestFrame frame);
  void end(std::uint64_t id);
  void ended();

  AgentHost& host_;
  const Clock& clock_;
  const std::int32_t max_functions_;
  Calls calls_;
  std::map<std::string, Backbone> backbones_;
  std::optional<std::vector<PlannedBackbone>> plan_;  // none: all stays as it is
  std::map<Coming, Way> coming_;
  std::map<std::uint64_t, Instance> instances_;
  std::uint64_t load_changes_ = 0;
  std::uint64_t loops_ = 0;     // that were started
  std::int32_t ending_ = 0;     // processes that still end
  std::int64_t ending_kv_ = 0;  // KV memory that these hold
  std::function<void()> all_ended_;
  std::optional<Duration> offset_;  // of this clock to the gateway's
};

}  // namespace sluice
