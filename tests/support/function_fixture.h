// FunctionFixture: function processes of a small model, and clients that collect their answers.
// Owner: a test. Threads: one each.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "backbone/backbone.h"
#include "function/process_engine_loop.h"
#include "function/turn_service.h"
#include "tests/golden/golden_case.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/sanitized.h"

namespace sluice::test {

// One function and what it has answered.
class FunctionClient {
 public:
  FunctionClient(const Backbone& backbone, TurnService& turns, ProcessEngineLoop::Options options)
      : loop_(std::make_unique<ProcessEngineLoop>(std::move(options), backbone, turns, clock_,
                                                  [this] { woke(); })) {
    loop_->start();
  }
  // Takes over a warm worker.
  FunctionClient(std::unique_ptr<ProcessEngineLoop> worker, SharedContent adapter)
      : loop_(std::move(worker)) {
    loop_->specialize(std::move(adapter), [this] { woke(); });
  }
  ~FunctionClient() { loop_->stop(); }

  ProcessEngineLoop& loop() { return *loop_; }

  // The choice's end, with all its tokens.
  struct Answer {
    std::vector<TokenId> tokens;
    std::vector<TokenLogprob> logprobs;
    FinishReason reason = FinishReason::kNone;
    std::optional<Error> refusal;
  };

  // Waits until `done` holds, and takes all outputs meanwhile.
  template <class Done>
  bool wait_for(const Done& done) {
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);;) {
      OutputBatch batch;
      loop_->take(batch);
      for (const OutputEvent& event : batch.events) {
        Answer& answer = answers_[{event.request, event.choice}];
        const auto tokens = batch.tokens_of(event);
        answer.tokens.insert(answer.tokens.end(), tokens.begin(), tokens.end());
        const auto logprobs = batch.logprobs_of(event);
        answer.logprobs.insert(answer.logprobs.end(), logprobs.begin(), logprobs.end());
        answer.reason = event.finish_reason;
      }
      for (const RefusedRequest& refused : batch.refused) {
        answers_[{refused.request, 0}] = {{}, {}, FinishReason::kError, refused.error};
      }
      if (done()) return true;
      std::unique_lock lock(mutex_);
      if (!news_.wait_until(lock, end, [&] { return woken_; })) return false;
      woken_ = false;
    }
  }
  bool wait_until_ready() {
    return wait_for([&] { return loop_->ready_process() || loop_->failure(); });
  }
  Answer wait_for_answer(RequestId id, std::int32_t choice = 0) {
    Answer& answer = answers_[{id, choice}];
    EXPECT_TRUE(wait_for([&] { return answer.reason != FinishReason::kNone; }));
    return answer;
  }

 private:
  void woke() {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    news_.notify_all();
  }

  const SystemClock clock_;
  std::mutex mutex_;
  std::condition_variable news_;
  bool woken_ = false;
  std::map<std::pair<RequestId, std::int32_t>, Answer> answers_;  // by request and choice
  std::unique_ptr<ProcessEngineLoop> loop_;
};

class FunctionFixture : public testing::Test {
 protected:
  void SetUp() override {
    write_golden_checkpoint(read_golden_case("tests/golden/models", "qwen3-tied"), model_.path());
    ThreadPool pool(1);
    const auto device = make_cpu_device({&pool, 0, {}});
    backbone_ = *read_only(*make_backbone(model_.path(), engine_options(), **device, pool));
  }

  static EngineOptions engine_options() {
    EngineOptions options;
    options.max_num_seqs = 2;
    options.token_budget = 16;
    options.max_model_len = 64;
    options.kv_cache_memory = 1 << 20;
    return options;
  }

  ProcessEngineLoop::Options options() const {
    ProcessEngineLoop::Options options;
    options.command = {SLUICE_FUNCTION_CHILD};
    options.best_effort = true;
    // Sanitizers reserve terabytes of addresses, which RLIMIT_DATA counts.
    if (kSanitized) options.sandbox.memory_bytes = std::uint64_t{1} << 46;
    options.start.kv_bytes = 1 << 20;
    options.start.max_num_seqs = 2;
    options.start.token_budget = 16;
    options.start.block_size = 16;
    options.start.threads = 1;
    options.start.max_requests = 8;
    options.start.scheduler = "stall-free";
    const auto config = parse_model_config(open_backbone(backbone_)->config);
    options.vocab_size = config->vocab_size;
    options.eos_ids = config->eos_tokens;
    return options;
  }

  std::vector<TokenId> expected(Request request) const {
    EngineFixture engine(model_.path(), engine_options(), 1);
    const RequestId id = request.id;
    engine.add(std::move(request));
    return engine.run_to_end()[{id, 0}].tokens;
  }

  TempDirectory model_;
  Backbone backbone_;
  const SystemClock clock_;
  std::unique_ptr<TurnService> turns_ = *TurnService::start({}, clock_);
};

}  // namespace sluice::test
