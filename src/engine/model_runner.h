// ModelRunner: the Executor that runs a real model on a device. A submitted step is: sampling
// state for new sequences, inputs, block copies, forward (from a graph or eagerly), sampling.
// Steps run in the order of submission. Up to two may be submitted and not collected; then the
// later plan may contain kTokenFromLastStep for tokens that the earlier step samples.
//
// Plans also size the KV memory (KvMemory) and start transfers (Transfers, PageTransfers).
//
// An asynchronous device itself samples the rows that need only a random draw, and keeps their
// tokens. Then submit() never waits, and collect() waits once. Rows with penalties, biases, masks
// or log-probabilities are sampled on the host after the step's end: the step's collect() or the
// next submit(), whichever is called first, waits for it.
//
// It holds everything that the forward pass uses: configuration, arena, decoder, inputs, graphs,
// sampler. While weights are still being read (WeightStream), steps run without a graph and wait
// for each layer. A step fails if it read weights from a truncated file; check() fails if a weight
// file was changed in place (WeightWatch). Owner: the engine. Threads: the engine's thread. Steps
// allocate nothing once every graph is captured and every slot has been used.
//
// With one step in flight, tokens that a grammar forces follow the sampled one without a step of
// their own (RowResult::num_forced). With two, the next step of the sequence is planned before they
// are known, so there they are sampled like others.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "device/arena.h"
#include "device/device.h"
#include "engine/adapter_memory.h"
#include "engine/batch_inputs.h"
#include "engine/device_counters.h"
#include "engine/graph_cache.h"
#include "engine/kv_contents.h"
#include "engine/kv_memory.h"
#include "engine/logits_tap.h"
#include "engine/page_transfers.h"
#include "engine/pooler.h"
#include "engine/step_trace.h"
#include "engine/streamed_steps.h"
#include "engine/transfers.h"
#include "engine/weight_pages.h"
#include "engine/weight_stream.h"
#include "engine/weight_watch.h"
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
  std::int32_t max_scored = 0;  // SchedulerOptions::max_scored
  std::int32_t max_model_len = 0;
  std::int32_t table_width = 0;      // blocks of the longest sequence
  std::int32_t steps_in_flight = 0;  // 1 or 2; 0: 2 if the device is asynchronous, else 1
  GraphMode graphs = GraphMode::kReplay;
  DType kv_dtype = DType::kF32;
  std::vector<TokenId> eos_ids;
  // Slots of adapters, and the contents that plans load into them; 0: plans have no transfers.
  std::int32_t adapter_slots = 0;
  SharedAdapters adapters;
  bool has_rope_tables = true;  // Decoder::Options::has_rope_tables
};

// In blocks, the null block included.
struct KvMemorySize {
  std::int32_t at_start = 0;  // backed by start()
  std::int32_t most = 0;      // what the arena's KV region is reserved for
};

class ModelRunner final : public Executor,
                          public DeviceMeter,
                          public KvContents,
                          public LogitsTap,
                          public TraceTap {
 public:
  // Adds every buffer except the weights to `arena_plan`. Call start() next.
  // REQUIRES: device and pool outlive the runner.
  ModelRunner(std::unique_ptr<ModelConfig> config, KvLayout layout, WeightDTypes weights,
              const ModelRunnerOptions& options, Device& device, ThreadPool& pool,
              ArenaPlan& arena_plan);

  // Waits for submitted steps.
  ~ModelRunner() override;
  ModelRunner(const ModelRunner&) = delete;
  ModelRunner& operator=(const ModelRunner&) = delete;

  // Takes over the arena, with weights loaded and inputs and workspace backed, and the watch on the
  // weight files. Backs the first KV memory. `stream`: brings mapped weights in; null = steps read
  // them as they use them. `rope`: as for Decoder::bind().
  Status start(Arena arena, DecoderWeights weights, WeightWatch watch, KvMemorySize kv,
               std::unique_ptr<WeightStream> stream = nullptr, std::span<const float> rope = {});
  // Moves weights as soon as no step waits for them any more. Returns `pages`. REQUIRES: started.
  WeightPages* use_large_pages(std::unique_ptr<WeightPages> pages) {
    large_pages_ = std::move(pages);
    return large_pages_.get();
  }

  // Takes the pages of the first KV memory from the system. REQUIRES: started.
  Status touch_kv_memory();

  // Captures the graphs of all capacities, so that no step has to. REQUIRES: started.
  Status capture_graphs();
  // The same with lists that an earlier process stored: see GraphCache::restore_all().
  Result<std::string> restore_graphs(std::vector<OpList> stored);

  int max_in_flight() const override { return options_.steps_in_flight; }
  Status submit(const BatchPlan& plan) override;
  Status collect(StepResult& out) override;
  Status poll(std::vector<TransferResult>& completed) override;
  Status wait_for_transfer(Duration at_most) override;
  std::int32_t kv_backed_blocks() const override { return kv_.backed_blocks(); }
  std::int32_t kv_held_blocks() const override { return kv_.held_blocks(); }
  bool kv_growth_failed() const override { return kv_.growth_failed(); }
  bool tier_accepts_saves() const override { return pages_ && pages_->accepts_saves(); }
  void take_lost_pages(std::vector<PagedBlock>& lost) override {
    if (pages_) pages_->take_lost(lost);
  }
  void take_page_levels(std::vector<PageLevel>& changes) override {
    if (pages_) pages_->take_levels(changes);
  }
  Status flush_tier(Duration at_most) override {
    return pages_ ? pages_->flush(at_most) : Status{};
  }
  Status check(TimePoint now) override;
  Status check_now(TimePoint now) override;
  std::optional<TimePoint> next_check() const override;

  DType input_dtype() const { return decoder_.input_dtype(); }

  DeviceTime device_time() const override { return device_time_; }
  ComputedWork computed_work() const override { return computed_work_; }

  std::size_t block_bytes() const override;
  Status read_block(BlockId id, std::span<std::byte> out) override;
  Status write_block(BlockId id, std::span<const std::byte> contents) override;
  Status use_tier(std::unique_ptr<KvTier> tier) override;
  Result<StreamShape> use_stream(const KvStream::Options& options) override;
  KvStream::Bytes streamed_bytes() const override {
    return streamed_ ? streamed_->bytes() : KvStream::Bytes{};
  }
  std::int64_t tier_memory_bytes() const override { return pages_ ? pages_->memory_bytes() : 0; }
  TierLevels tier_levels() const override { return pages_ ? pages_->levels() : TierLevels{}; }
  void end_stream(SequenceId sequence) override {
    if (streamed_) streamed_->end(sequence);
  }
  void watch_logits(Look look) override { look_ = std::move(look); }
  Status trace_steps(StepTrace* trace) override;

  const Decoder& decoder() const { return decoder_; }
  const GraphCache& graphs() const { return graphs_; }
  // REQUIRES: started.
  const Arena& arena() const { return *arena_; }

 private:
  // A step that was submitted and not collected.
  struct Step {
    const BatchPlan* plan = nullptr;
    std::vector<RowSampling> sampling;  // by logit position; without a slot: the host samples it
    HostBuffer tokens;                  // what the device sampled, by logit position
    StepResult result;                  // once `finished`
    bool needs_host = false;            // to sample or pool some of its rows
    bool finished = false;
    bool lost_kv = false;    // the KV of its streamed row could not be moved
    bool follows = false;    // another step was in flight when it was submitted
    std::size_t number = 0;  // of all steps
    ComputedWork work;
  };

  // The marks of a step. The marks of the step before it must stay valid until the step has been
  // timed.
  static constexpr std::size_t kMarkSets = 3;
  static std::size_t start_mark(std::size_t number) { return number % kMarkSets; }
  static std::size_t end_mark(std::size_t number) { return kMarkSets + number % kMarkSets; }

  // The mark after the copies of a plan without rows.
  static constexpr std::size_t kMovedMark = 2 * kMarkSets;

  std::byte* block_address(BlockId id) const;
  DecoderInputs decoder_inputs() const;
  Status submit_step(const BatchPlan& plan);
  Status move_blocks(const BatchPlan& plan);
  Status start_transfers(const BatchPlan& plan);
  void release_kv();
  void assign_slots(const BatchPlan& plan);
  void choose_sampling(Step& step) const;
  void forward(const StepCapacity& capacity, ForwardVariant variant);
  void forward(const StepCapacity& capacity, ForwardVariant variant, Decoder::BeforeStage before);
  ForwardVariant variant() const {
    return inputs_.uses_adapters() ? ForwardVariant::kAdapters : ForwardVariant::kPlain;
  }
  Status capture_graphs(ForwardVariant variant);
  Status run_model(const BatchPlan& plan);
  Status run_streamed(Step& step);
  Status poll_stream();
  void move_weights(TimePoint now);
  Status check_pages();
  Status fetch_tokens(Step& step);
  Status finish(Step& step);
  ComputedWork work_of(const BatchPlan& plan) const;
  Status measure(const Step& step);
  Status sample_on_host(const Step& step);
  SampleRow sample_row(const PlanRow& row, const float* logits) const;
  Status pool(Step& step);
  Result<const float*> host_logits(std::int32_t row);
  static void append_result(const SampledRow* sampled, std::span<const SampledRow> scored,
                            StepResult& result);

  std::unique_ptr<ModelConfig> config_;
  KvLayout layout_;
  ModelRunnerOptions options_;
  Device& device_;
  StepCapacity capacity_;
  Decoder decoder_;
  BatchInputs inputs_;
  GraphCache graphs_;
  Sampler sampler_;
  Pooler pooler_;
  std::unique_ptr<Arena> arena_;
  WeightWatch watch_;  // of what the arena maps
  std::unique_ptr<WeightStream> stream_;
  std::unique_ptr<WeightPages> large_pages_;
  TimePoint next_move_{};        // of weights, if no step runs before then
  std::size_t moved_after_ = 0;  // steps
  KvMemory kv_;
  std::size_t release_after_ = 0;  // steps before this number may use KV memory to be released
  std::optional<AdapterMemory> adapter_memory_;
  std::optional<Transfers> transfers_;
  std::optional<PageTransfers> pages_;
  std::optional<StreamedSteps> streamed_;
  std::size_t last_mark_ = Transfers::kNoMark;  // of the compute queue, after the last plan

  // By slot: the token sampled last, or the code that makes the embedding read it in device memory.
  std::vector<TokenId> last_tokens_;
  std::vector<std::int32_t> max_outputs_;  // by slot: the most tokens of output
  std::int32_t* device_tokens_ = nullptr;  // of the step that runs, by logit position
  std::vector<SampleRow> sample_rows_;     // of the host, with what it sampled
  std::vector<SampledRow> sampled_;
  std::vector<ScoreRow> score_rows_;  // the step's prompt tokens to score, with the results
  std::vector<SampledRow> scored_;
  std::vector<float> logits_copy_;  // if the host cannot read device memory
  Look look_;
  StepTrace* trace_ = nullptr;

  std::array<Step, 2> steps_;  // a ring, the oldest first
  std::size_t first_step_ = 0;
  std::size_t num_steps_ = 0;
  std::size_t submitted_ = 0;  // since the start
  DeviceTime device_time_;
  ComputedWork computed_work_;
};

}  // namespace sluice
