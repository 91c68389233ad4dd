// EngineFixture: an engine for tests, by default on the CPU device. Loads a checkpoint directory,
// runs requests to their end and collects their outputs. Owner: a test. Threads: one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "device/cpu/cpu_device.h"
#include "engine/backbone_loader.h"
#include "engine/engine_loader.h"
#include "engine/engine_options.h"
#include "offload/kv_tier.h"

namespace sluice::test {

struct ChoiceResult {
  std::vector<TokenId> tokens;
  std::vector<TokenLogprob> logprobs;
  std::vector<PromptLogprob> prompt_logprobs;
  std::vector<float> embedding;
  FinishReason finish_reason = FinishReason::kNone;
  std::int32_t cached_prompt_tokens = 0;
};

// By (request, choice).
using Results = std::map<std::pair<RequestId, std::int32_t>, ChoiceResult>;

class EngineFixture {
 public:
  // CHECKs that the model loads. `snapshot`: of load_engine(); it outlives this. `stream`: of
  // add_stream(); null = none. `clock`: outlives this; null: the system's. With one that stands
  // still, loads from a tier always pay, however slow the machine is.
  EngineFixture(const std::string& directory, const EngineOptions& options, int threads,
                std::unique_ptr<Device> device = nullptr, Snapshot* snapshot = nullptr,
                std::unique_ptr<KvTier> tier = nullptr, const KvStream::Options* stream = nullptr,
                const Clock* clock = nullptr);
  // The same on a backbone.
  EngineFixture(const Backbone& backbone, const EngineOptions& options, int threads,
                std::unique_ptr<Device> device = nullptr, const BackboneUse& use = {});

  Engine& engine() { return *loaded_.engine; }
  const LoadedEngine& loaded() const { return loaded_; }
  Device& device() { return *device_; }
  ThreadPool& pool() { return pool_; }

  // Queues a request; CHECKs success. Fills in the digests of the prompt's blocks, unless
  // prompt_logprobs or a mean are wanted, and holds the content of its adapter. `tenant`: as
  // KvIdentity::tenant_salt; not empty: it also owns the blocks.
  void add(Request request, std::string_view tenant = {});
  // Runs steps and adds outputs to `results`; CHECKs success, and the integrity after each step.
  void step(Results& results);
  Results run_to_end();

 private:
  SystemClock system_clock_;
  ThreadPool pool_;
  std::unique_ptr<Device> device_;
  LoadedEngine loaded_;
};

// A greedy request without eos.
Request greedy_request(RequestId id, std::vector<TokenId> prompt, std::int32_t max_tokens);

}  // namespace sluice::test
