// ProcessEngineLoop: an EngineLoop whose engine runs in a sandboxed process of its own, on a shared
// backbone. Its thread starts the process, moves frames, checks every batch, and restarts the
// process with growing pauses after its death. The process dies with this thread, or when its
// socket closes. It computes only while it holds a turn of the TurnService.
//
// A death, a lie (OutstandingRequests), silence beyond Options::hang_limit and memory beyond the KV
// limit (KvLimit) all end the process.
// Its choices then end with kError. Requests that come before the next process is ready wait for
// it. If the first process cannot start, or a layer of the sandbox is missing and best_effort is
// off, the state becomes kFailed, with the missing layers in failure().
//
// Owner: the command. Threads: start() and stop() from the owner's; the rest as EngineLoop says.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "adapter/adapter_store.h"
#include "backbone/backbone.h"
#include "base/clock.h"
#include "base/result.h"
#include "function/frames.h"
#include "function/tenant_loop.h"
#include "function/turn_service.h"
#include "sandbox/options.h"
#include "server/engine_loop.h"

namespace sluice {

class ProcessEngineLoop final : public TenantLoop {
 public:
  struct Options {
    std::vector<std::string> command;  // a program that calls run_function(), and its arguments
    SandboxOptions sandbox;
    bool best_effort = false;  // run without the layers that this machine lacks, and log them
    StartFrame start;
    SharedContent adapter;  // in sealed memory; null: the function computes the base model
    std::int32_t vocab_size = 0;
    std::int32_t hidden_size = 0;
    std::vector<TokenId> eos_ids;                    // the end-of-sequence ids
    Duration slow_step{0};                           // TurnKeeper::add()
    Duration hang_limit = std::chrono::seconds(60);  // without a frame, with requests, waits apart
    Duration start_limit = std::chrono::seconds(120);
    Duration first_pause = std::chrono::milliseconds(50);
    Duration longest_pause = std::chrono::seconds(10);
    Duration start_after{0};  // before the first process
    // With start.kv_least: of a KV block; else 0. The process then has to keep to its KV limits
    // (KvLimit).
    std::int64_t kv_block_bytes = 0;
    std::int64_t memory_beside_kv = 0;  // the most own memory beside KV memory; 0: any
    Duration kv_limit_time = std::chrono::seconds(5);  // to keep to a limit
  };

  // `backbone`: read-only descriptors. It and `turns` outlive this.
  ProcessEngineLoop(Options options, const Backbone& backbone, TurnService& turns,
                    const Clock& clock, std::function<void()> wake);
  ~ProcessEngineLoop() override;  // stops
  ProcessEngineLoop(const ProcessEngineLoop&) = delete;
  ProcessEngineLoop& operator=(const ProcessEngineLoop&) = delete;

  void start();
  // Ends the process and the thread. Unfinished choices end with kCancelled. A second call does
  // nothing.
  void stop();

  // Makes a loop that was made without an adapter that of `adapter` (null: of the base model), and
  // `wake` its wake from now on; a call of the old one may still run. The loop wakes once.
  // REQUIRES: no request was submitted, `start.lora_rank` is large enough, and this is the first
  // call.
  void specialize(SharedContent adapter, std::function<void()> wake);

  // The process uses turn time of this tenant from now on.
  void set_tenant(const std::string& tenant) override;

  // Memory as /proc shows it.
  FunctionUse use() const override;
  // Also holds for the processes that follow; with start.kv_least these have that first.
  void limit_kv(std::int64_t bytes) override;
  FunctionKv kv() const override;

  // REQUIRES: the request names the function's adapter, by its index.
  // Also the errors of check_grammar().
  Status submit(Request request) override;
  void cancel(RequestId id) override;
  void end_choice(RequestId id, std::int32_t choice, FinishReason reason) override;
  void ask_progress() override;
  void take(OutputBatch& batch) override;
  std::int32_t max_requests() const override;
  EngineState state() const override;
  std::optional<Error> failure() const override;
  std::int32_t unfinished_requests() const override;

  // The process that is ready; nothing between two processes.
  std::optional<pid_t> ready_process() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
