// RemoteLoop: the gateway's end of a function that runs on an agent. It turns calls into commands,
// and checks every batch of the agent against the requests that it was given.
//
// - A death of the function's process is the agent's affair: its calls end with kError, and the
//   agent starts another process.
// - lost(): nothing is heard of the agent any more. All calls end with kError. Until fenced() the
//   function may still run there, so the state is kLoading and no other instance may start.
// - fenced(): it runs there no more. The state is kFailed.
//
// Owner: the driver of the gateway. Threads: the event loop's only. REQUIRES: the channel outlives
// it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agents/agent_frames.h"
#include "base/clock.h"
#include "function/grammar_places.h"
#include "function/outstanding.h"
#include "function/tenant_loop.h"

namespace sluice {

class RemoteLoop;

// The way from a RemoteLoop to its agent.
class AgentChannel {
 public:
  virtual ~AgentChannel() = default;
  // Sends a command, or drops it if the agent is lost. False: it is too large for a frame.
  virtual bool send(const AgentCommand& command, std::int32_t agent) = 0;
  // The loop ends; its instance is to end, too.
  virtual void forget(const RemoteLoop& loop) = 0;
};

class RemoteLoop final : public TenantLoop {
 public:
  struct Options {
    std::uint64_t instance = 0;
    std::int32_t agent = 0;  // its number
    std::string agent_name;
    std::string backbone;
    std::string adapter_digest;  // empty: the base model
    std::int32_t adapter = -1;   // as requests name it
    OutstandingRequests::Model model;
    std::int32_t turn_cores = 1;          // of a turn there
    std::int32_t gateway_turn_cores = 1;  // of a turn at the gateway, in which use() counts
    std::int32_t max_requests = 0;
  };

  RemoteLoop(Options options, AgentChannel& channel, const Clock& clock,
             std::function<void()> wake);
  ~RemoteLoop() override;
  RemoteLoop(const RemoteLoop&) = delete;
  RemoteLoop& operator=(const RemoteLoop&) = delete;

  std::uint64_t instance() const { return options_.instance; }
  std::int32_t agent() const { return options_.agent; }

  // Takes an output of the agent. An error: the agent lies or is broken; end the session.
  Status handle(AgentOutput output);
  void set_own_bytes(std::int64_t bytes) { use_.own_bytes = bytes; }
  void lost();
  void fenced();

  bool is_lost() const override { return lost_; }
  // Starts the instance, which is of this tenant.
  void set_tenant(const std::string& tenant) override;
  FunctionUse use() const override;
  // Nothing: an agent divides the KV memory of its machine itself.
  void limit_kv(std::int64_t /*bytes*/) override {}
  Status submit(Request request) override;
  void cancel(RequestId id) override;
  void end_choice(RequestId id, std::int32_t choice, FinishReason reason) override;
  void ask_progress() override;
  void take(OutputBatch& batch) override;
  std::int32_t max_requests() const override { return options_.max_requests; }
  EngineState state() const override { return state_; }
  std::optional<Error> failure() const override { return failure_; }
  std::int32_t unfinished_requests() const override {
    return static_cast<std::int32_t>(outstanding_.size());
  }

 private:
  AgentCommand frame_command(ToFunction frame) const;
  void post(ToFunction frame);
  Status handle_state(StateFrame frame);
  Status handle_batch(OutputBatch batch);

  const Options options_;
  AgentChannel& channel_;
  const Clock& clock_;
  const std::function<void()> wake_;
  EngineState state_ = EngineState::kLoading;
  std::optional<Error> failure_;
  bool lost_ = false;
  OutstandingRequests outstanding_;
  GrammarPlaces grammars_;
  bool progress_wanted_ = false;
  OutputBatch pending_;
  EngineGauges gauges_;
  FunctionUse use_;
};

}  // namespace sluice
