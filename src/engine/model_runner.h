// ModelRunner: the Executor that runs a real model on a device. A submitted step is: sampling
// state for new sequences, inputs, block copies, forward (from a graph or eagerly), sampling.
// Steps run in the order of submission; up to two may be submitted and not collected, and then
// the later one may contain kTokenFromLastStep where the earlier one's tokens go.
//
// It holds everything the forward pass touches: configuration, arena, decoder, inputs, graphs,
// sampler. Owner: the engine. Threads: the engine's thread. Steps allocate nothing once every
// graph is captured and every slot has been used.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "device/arena.h"
#include "device/device.h"
#include "engine/batch_inputs.h"
#include "engine/graph_cache.h"
#include "kv/kv_layout.h"
#include "model/decoder.h"
#include "model/model_config.h"
#include "model/weights.h"
#include "sampling/sampler.h"
#include "scheduler/executor.h"

namespace sluice {

struct ModelRunnerOptions {
  std::int32_t token_budget = 0;
  std::int32_t max_num_seqs = 0;
  std::int32_t max_model_len = 0;
  std::int32_t table_width = 0;  // blocks of the longest sequence
  std::int32_t steps_in_flight = 1;
  GraphMode graphs = GraphMode::kReplay;
  DType kv_dtype = DType::kF32;
  std::vector<TokenId> eos_ids;
};

class ModelRunner final : public Executor {
 public:
  // Plans every buffer but the weights into `arena_plan`. Follow with start().
  // REQUIRES: device and pool outlive the runner.
  ModelRunner(std::unique_ptr<ModelConfig> config, KvLayout layout, DType weights_dtype,
              const ModelRunnerOptions& options, Device& device, ThreadPool& pool,
              ArenaPlan& arena_plan);

  // Takes the arena, in which weights are loaded and inputs, workspace and KV are backed.
  Status start(Arena arena, DecoderWeights weights);

  int max_in_flight() const override { return options_.steps_in_flight; }
  Status submit(const BatchPlan& plan) override;
  Status collect(StepResult& out) override;

  const GraphCache& graphs() const { return graphs_; }

 private:
  DecoderInputs decoder_inputs() const;
  void assign_slots(const BatchPlan& plan);
  Result<const float*> host_logits(std::size_t rows);
  Status sample(const BatchPlan& plan, StepResult& result);
  void append_result(const PlanRow& row, const SampledRow* sampled, StepResult& result);

  std::unique_ptr<ModelConfig> config_;
  KvLayout layout_;
  ModelRunnerOptions options_;
  Device& device_;
  StepCapacity capacity_;
  Decoder decoder_;
  BatchInputs inputs_;
  GraphCache graphs_;
  Sampler sampler_;
  std::unique_ptr<Arena> arena_;

  std::vector<TokenId> last_tokens_;  // by slot
  std::vector<SampleRow> sample_rows_;
  std::vector<SampledRow> sampled_;
  std::vector<float> logits_copy_;  // where the device's memory is not the host's

  // Results of steps that ran and were not collected, oldest first.
  std::array<StepResult, 2> results_;
  int first_result_ = 0;
  int num_results_ = 0;
};

}  // namespace sluice
