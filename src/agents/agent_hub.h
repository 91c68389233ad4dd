// AgentHub: the gateway's end of its agents. It answers their REST calls, keeps a stream of
// commands to each, and makes the loops of functions that run on them.
// docs/gateway-machines.md lists the paths.
//
// Its knowledge is soft: after a restart agents find that their epoch is unknown, end their
// functions and join again. An agent is lost when its stream closes, when it says something that
// cannot be true, or when it was silent for too long: its calls end at once. It is fenced when a
// new join of its name, its own leave or the end of its lease says that it runs nothing more; only
// then may its functions start elsewhere.
//
// Owner: the command. Threads: the event loop's. tick() is to be called several times in an expiry.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapter/adapter_store.h"
#include "agents/agent_book.h"
#include "agents/agent_frames.h"
#include "agents/remote_loop.h"
#include "base/clock.h"
#include "function/tenant_loop.h"
#include "http/http_server.h"
#include "membership/bearer_token.h"

namespace sluice {

// A backbone as loops of it need it.
struct HubBackbone {
  GatewayBackbone backbone;
  OutstandingRequests::Model model;
};

enum class AgentPhase : std::uint8_t {
  kGone,      // it runs nothing
  kLost,      // its calls have ended; its functions may still run there until its lease ends
  kDraining,  // it takes no functions
  kOpen,
};

std::string_view agent_phase_name(AgentPhase phase);  // "open" and so on

// The state of one agent, as the gateway knows it.
struct AgentView {
  std::string name;
  std::int32_t number = 0;  // from 1; the same after each join
  bool open = false;        // it takes functions
  std::int32_t places = 0;  // functions at a time
  std::int64_t cores = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t free_bytes = 0;
  std::vector<bool> backbones;      // by number: whether it can load them
  std::vector<AgentHolding> holds;  // by number, as it has said last
  // Adapters in its memory by digest, of each backbone, with the time that each took to come.
  std::vector<std::map<std::string, Duration, std::less<>>> adapters;
  AgentPhase phase = AgentPhase::kGone;
  TimePoint heard;  // when its lease was renewed last
};

// The plan for a backbone on an agent.
struct HubPlan {
  std::int32_t workers = 0;
  std::vector<SharedContent> adapters;
};

class AgentHub final : public http::Handler, private AgentChannel {
 public:
  struct Options {
    Duration expiry = std::chrono::seconds(5);
    std::uint64_t first_epoch = 1;     // differs from those of earlier runs
    std::int32_t turn_cores = 1;       // of the gateway's own functions
    std::int32_t max_requests = 1024;  // of one function
  };

  // Runs `work` on another thread, and then `done` on the event loop.
  using Aside = std::function<void(std::function<void()> work, std::function<void()> done)>;

  // `changed`: an agent came, went or changed. `aside`: for work that would stop the event loop for
  // long. REQUIRES: the clock outlives it, it outlives its loops, and `aside` calls nothing once it
  // has ended.
  AgentHub(const Options& options, BearerToken token, const Clock& clock,
           std::function<void()> changed, Aside aside);
  ~AgentHub() override;
  AgentHub(const AgentHub&) = delete;
  AgentHub& operator=(const AgentHub&) = delete;

  static constexpr Duration kPlanAgain = std::chrono::seconds(30);

  // Agents may join from now on.
  void set_backbones(std::vector<HubBackbone> backbones);
  void tick();
  // Closes all streams; agents end their functions.
  void stop();

  // A plan of backbones by number, with warm workers and adapters; what is absent from it leaves
  // the agent's memory when no function uses it. The first kMaxAgentAdapters adapters count. It is
  // sent if it is another one than before, or if the last one was sent kPlanAgain ago.
  // Ignored unless the agent is open.
  void plan(std::int32_t agent, const std::map<std::int32_t, HubPlan>& plan_of);

  // All that were ever there, by number from 1.
  const std::vector<AgentView>& agents() const { return views_; }
  // The time until an agent counts as gone, if nothing more is heard of it; 0: it is gone.
  Duration lease_left(std::int32_t agent) const;
  // `adapter`: null for the base model. REQUIRES: the agent is open and has the backbone.
  std::unique_ptr<TenantLoop> start(std::int32_t agent, std::int32_t backbone,
                                    SharedContent adapter, const std::string& tenant,
                                    std::function<void()> wake);

  std::optional<http::Response> admit(const http::Request& head) override;
  void handle(std::shared_ptr<http::Exchange> exchange) override;  // shared as every exchange is
  http::Response refusal(const http::Request& head, int status, std::string message) override;

 private:
  struct Agent {
    std::uint64_t epoch = 0;
    std::int32_t turn_cores = 1;
    // Shared as every exchange is. Null: lost, or its stream was not opened yet.
    std::shared_ptr<http::Exchange> stream;
    bool draining = false;
    bool fenced = true;  // nothing of an earlier epoch runs
    TimePoint pinged;
    std::optional<std::vector<PlannedBackbone>> planned;  // the plan that was sent last
    std::vector<SharedContent> planned_adapters;          // which it may ask for
    TimePoint planned_at;
    std::map<std::uint64_t, RemoteLoop*> loops;  // by instance
  };

  bool send(const AgentCommand& command, std::int32_t agent) override;
  void forget(const RemoteLoop& loop) override;

  AgentAnswer join(const http::Request& request);
  AgentAnswer report(const http::Request& request);
  AgentAnswer outputs(const http::Request& request);
  AgentAnswer leave(const http::Request& request);
  // Shared as every exchange is.
  void listen(const std::shared_ptr<http::Exchange>& exchange);
  // Shared as every exchange is.
  void send_adapter(std::shared_ptr<http::Exchange> exchange, std::string_view digest);
  AgentAnswer check_stream(const std::string& name);
  AgentAnswer check_report(const AgentReport& report) const;
  std::optional<std::size_t> number_of_backbone(const std::string& name) const;

  Agent* find(const std::string& name);
  Agent& at(std::int32_t number) { return agents_[static_cast<std::size_t>(number - 1)]; }
  AgentView& view(std::int32_t number) { return views_[static_cast<std::size_t>(number - 1)]; }
  std::int32_t number_of(const std::string& name);
  void lose(std::int32_t number, const std::string& cause);
  void fence(std::int32_t number);
  void drop_unused_adapters();
  void update(std::int32_t number);

  const Options options_;
  const BearerToken token_;
  const Clock& clock_;
  const std::function<void()> changed_;
  const Aside aside_;
  AgentBook book_;
  std::vector<HubBackbone> backbones_;
  std::vector<Agent> agents_;
  std::vector<AgentView> views_;
  std::uint64_t next_instance_ = 1;
  // By digest; loops and plans have them.
  std::map<std::string, SharedContent, std::less<>> adapters_;
  // Calls whose adapters are being copied. Exchanges stay on the loop's thread.
  std::map<std::uint64_t, std::shared_ptr<http::Exchange>> adapter_calls_;
  std::uint64_t next_adapter_call_ = 0;
};

}  // namespace sluice
