#include "engine/model_runner.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace sluice {
namespace {

// Layers of a group are equal in every field that attention planning reads.
std::vector<GroupAttention> group_attention(const ModelConfig& config, const KvLayout& layout) {
  std::vector<GroupAttention> groups;
  for (const KvGroup& group : layout.groups) {
    const LayerConfig& layer = config.layers[static_cast<std::size_t>(group.layers.front())];
    groups.push_back({layer.num_heads, layer.num_kv_heads, layer.head_dim, group.window,
                      static_cast<std::int32_t>(group.layers.size())});
  }
  return groups;
}

constexpr const char* kSampledTokens = "model/sampled_tokens";
constexpr const char* kLibraryWorkspace = "model/library_workspace";
constexpr std::size_t kLibraryAlignment = 256;

ModelRunnerOptions with_defaults(ModelRunnerOptions options, const Device& device) {
  if (options.steps_in_flight == 0) {
    options.steps_in_flight = device.traits().asynchronous ? 2 : 1;
  }
  return options;
}

StepCapacity step_capacity(const ModelRunnerOptions& options) {
  // Decodes are never cut, so a step may have one token per sequence whatever the budget says.
  return {std::max(options.token_budget, options.max_num_seqs), options.max_num_seqs,
          options.max_num_seqs + options.max_scored};
}

BatchInputsOptions inputs_options(const ModelConfig& config, const KvLayout& layout,
                                  const ModelRunnerOptions& options) {
  BatchInputsOptions inputs;
  inputs.capacity = step_capacity(options);
  inputs.max_slots = options.max_num_seqs;
  inputs.table_width = options.table_width;
  inputs.block_size = layout.block_size;
  inputs.groups = group_attention(config, layout);
  inputs.steps_in_flight = options.steps_in_flight;
  inputs.adapter_slots = options.adapter_slots;
  return inputs;
}

Decoder::Options decoder_options(const ModelConfig& config, const ModelRunnerOptions& options) {
  Decoder::Options decoder;
  decoder.last_layer = config.num_layers;
  decoder.capacity = step_capacity(options);
  decoder.max_positions = options.max_model_len;
  decoder.adapter_slots = options.adapter_slots;
  decoder.has_rope_tables = options.has_rope_tables;
  if (options.adapter_slots > 0) decoder.max_lora_rank = options.adapters->format().max_rank;
  return decoder;
}

}  // namespace

ModelRunner::ModelRunner(std::unique_ptr<ModelConfig> config, KvLayout layout, WeightDTypes weights,
                         const ModelRunnerOptions& options, Device& device, ThreadPool& pool,
                         ArenaPlan& arena_plan)
    : config_(std::move(config)),
      layout_(std::move(layout)),
      options_(with_defaults(options, device)),
      device_(device),
      capacity_(step_capacity(options)),
      decoder_(*config_, decoder_options(*config_, options), weights, device.traits(), arena_plan),
      inputs_(inputs_options(*config_, layout_, options_), device.ops(), arena_plan),
      graphs_(options.graphs, capacity_),
      sampler_({config_->vocab_size, options.max_num_seqs, options.max_model_len, options.eos_ids},
               pool),
      pooler_(options.max_num_seqs, config_->hidden_size, device) {
  CHECK(options_.steps_in_flight >= 1 &&
        options_.steps_in_flight <= static_cast<int>(steps_.size()));
  const auto slots = static_cast<std::size_t>(options.max_num_seqs);
  const auto rows = static_cast<std::size_t>(capacity_.logits);
  if (options_.adapter_slots > 0) {
    CHECK(options_.adapters->format().dtype == decoder_.input_dtype());
    adapter_memory_.emplace(options_.adapters, options_.adapter_slots, arena_plan);
  }
  last_tokens_.resize(slots, kTokenFromLastStep);
  max_outputs_.resize(slots);
  sample_rows_.reserve(rows);
  sampled_.resize(rows);
  const auto scored = static_cast<std::size_t>(options.max_scored);
  score_rows_.reserve(scored);
  scored_.resize(scored);
  arena_plan.add(RegionKind::kWorkspace, kSampledTokens, rows * sizeof(std::int32_t));
  if (const std::size_t bytes = device.traits().library_workspace; bytes > 0) {
    arena_plan.add(RegionKind::kWorkspace, kLibraryWorkspace, bytes, kLibraryAlignment);
  }
  for (Step& step : steps_) {
    step.sampling.reserve(rows);
    step.result.rows.reserve(static_cast<std::size_t>(capacity_.seqs));
    step.result.tokens.reserve(rows * (1 + static_cast<std::size_t>(kMaxForced)));
    step.result.logprobs.reserve(rows * kMaxRowLogprobs);
    step.result.prompt_logprobs.reserve(scored * kMaxRowLogprobs);
  }
}

ModelRunner::~ModelRunner() {
  pages_.reset();  // its threads and copies use the arena
  static_cast<void>(device_.synchronize());
  device_.ops().set_library_workspace(nullptr);
}

Status ModelRunner::start(Arena arena, DecoderWeights weights, WeightWatch watch, KvMemorySize kv,
                          std::unique_ptr<WeightStream> stream, std::span<const float> rope) {
  arena_ = std::make_unique<Arena>(std::move(arena));
  watch_ = std::move(watch);
  stream_ = std::move(stream);
  if (stream_) stream_->start(*arena_);
  kv_ = KvMemory(*arena_, device_, layout_.block_bytes, kv.most);
  if (auto backed = kv_.start(kv.at_start); !backed) {
    return with_context("KV memory", std::move(backed).error());
  }
  if (adapter_memory_) {
    adapter_memory_->bind(*arena_);
    transfers_.emplace(device_, *adapter_memory_);
  }
  RETURN_IF_ERROR(inputs_.bind(*arena_, device_));
  device_tokens_ =
      reinterpret_cast<std::int32_t*>(arena_->address(RegionKind::kWorkspace, kSampledTokens));
  if (device_.traits().library_workspace > 0) {
    device_.ops().set_library_workspace(arena_->address(RegionKind::kWorkspace, kLibraryWorkspace));
  }
  for (Step& step : steps_) {
    ASSIGN_OR_RETURN(step.tokens,
                     HostBuffer::create(device_, static_cast<std::size_t>(capacity_.logits) *
                                                     sizeof(std::int32_t)));
  }
  if (!device_.traits().host_accessible) {
    logits_copy_.resize(static_cast<std::size_t>(capacity_.logits) *
                        static_cast<std::size_t>(config_->vocab_size));
  }
  return decoder_.bind(*arena_, device_, std::move(weights), decoder_inputs(), rope);
}

Status ModelRunner::touch_kv_memory() {
  if (auto touched = kv_.touch(); !touched) {
    return with_context("KV memory", std::move(touched).error());
  }
  return {};
}

Status ModelRunner::capture_graphs(ForwardVariant variant) {
  return graphs_.capture_all(device_, variant,
                             [&](const StepCapacity& capacity) { forward(capacity, variant); });
}

Status ModelRunner::capture_graphs() {
  RETURN_IF_ERROR(capture_graphs(ForwardVariant::kPlain));
  return adapter_memory_ ? capture_graphs(ForwardVariant::kAdapters) : Status{};
}

Result<std::string> ModelRunner::restore_graphs(std::vector<OpList> stored) {
  if (adapter_memory_) RETURN_IF_ERROR(capture_graphs(ForwardVariant::kAdapters));
  return graphs_.restore_all(
      device_, ForwardVariant::kPlain, std::move(stored),
      [&](const StepCapacity& capacity) { forward(capacity, ForwardVariant::kPlain); });
}

std::size_t ModelRunner::block_bytes() const {
  return static_cast<std::size_t>(layout_.block_bytes);
}

std::byte* ModelRunner::block_address(BlockId id) const {
  CHECK(id > kNullBlock && id < kv_.backed_blocks());
  return arena_->region_base(RegionKind::kKv) + static_cast<std::size_t>(id) * block_bytes();
}

Status ModelRunner::read_block(BlockId id, std::span<std::byte> out) {
  CHECK(num_steps_ == 0 && out.size() == block_bytes());
  RETURN_IF_ERROR(device_.copy_to_host(out.data(), block_address(id), out.size()));
  return device_.synchronize(Queue::kCompute);
}

Status ModelRunner::write_block(BlockId id, std::span<const std::byte> contents) {
  CHECK(num_steps_ == 0 && contents.size() == block_bytes());
  RETURN_IF_ERROR(device_.copy_to_device(block_address(id), contents.data(), contents.size()));
  return device_.synchronize(Queue::kCompute);
}

// Without staging the tier moves bytes at any time after a plan is submitted, so the rows and
// copies before it must have run by then.
Status ModelRunner::use_tier(std::unique_ptr<KvTier> tier) {
  std::unique_ptr<BlockStaging> staging;
  if (!device_.traits().host_accessible || device_.traits().asynchronous) {
    auto made = BlockStaging::create(device_, block_bytes());
    if (!made) return with_context("host memory for KV blocks on their way", made.error());
    staging = *std::move(made);
  }
  pages_.emplace(std::move(tier), layout_, std::move(staging));
  return {};
}

DecoderInputs ModelRunner::decoder_inputs() const {
  DecoderInputs inputs = inputs_.decoder_inputs();
  if (adapter_memory_) {
    inputs.adapters.base = adapter_memory_->base();
    inputs.adapters.entries = adapter_memory_->entries();
  }
  std::byte* kv_base = arena_->region_base(RegionKind::kKv);
  for (const KvLayerPlace& place : layout_.layers) {
    KvLayerView view;
    view.k_base = kv_base + place.k_offset;
    view.v_base = kv_base + place.v_offset;
    view.dtype = options_.kv_dtype;
    view.block_size = layout_.block_size;
    view.block_stride = layout_.block_stride;
    view.head_stride = layout_.head_stride;
    view.token_stride = layout_.token_stride;
    inputs.layers.push_back({view, place.group});
  }
  return inputs;
}

Status ModelRunner::submit(const BatchPlan& plan) {
  CHECK(!plan.empty() && num_steps_ < static_cast<std::size_t>(options_.steps_in_flight));
  const bool shrinks = plan.kv_blocks != 0 && plan.kv_blocks < kv_.backed_blocks();
  if (plan.kv_blocks != 0 && !shrinks) kv_.grow(plan.kv_blocks);
  RETURN_IF_ERROR(start_transfers(plan));
  RETURN_IF_ERROR(plan.has_rows() ? submit_step(plan) : move_blocks(plan));
  if (shrinks) {
    kv_.shrink(plan.kv_blocks);
    release_after_ = submitted_;
    // An idle release: no step is there whose intermediate results the workspace holds.
    if (!plan.has_rows() && num_steps_ == 0) arena_->discard(RegionKind::kWorkspace);
  }
  release_kv();
  return {};
}

Status ModelRunner::move_blocks(const BatchPlan& plan) {
  if (plan.copies.empty() && plan.table_updates.empty()) return {};
  RETURN_IF_ERROR(
      inputs_.move_blocks(plan, arena_->region_base(RegionKind::kKv), layout_.block_bytes));
  last_mark_ = kMovedMark;
  return device_.mark(Queue::kCompute, kMovedMark);
}

// They run after all earlier plans and beside the rows of this one.
Status ModelRunner::start_transfers(const BatchPlan& plan) {
  for (const std::int32_t page : plan.wrong_pages) pages_->erase(page);
  if (plan.transfers.empty()) return {};
  if (streamed_) streamed_->start_moves(plan, arena_->region_base(RegionKind::kKv));
  for (const PlanTransfer& transfer : plan.transfers) {
    if (moves_stream(transfer.kind)) continue;
    if (transfer.kind != TransferKind::kLoadAdapter) {
      CHECK(pages_.has_value());
      const PagedBlock& block = plan.pages[static_cast<std::size_t>(transfer.resource)];
      const std::span<std::byte> contents(block_address(block.block), block_bytes());
      RETURN_IF_ERROR(pages_->start(transfer, block, contents, last_mark_));
      continue;
    }
    if (!transfers_) return unsupported("the model runner has nothing to load adapters from");
    RETURN_IF_ERROR(transfers_->start(transfer, last_mark_));
  }
  return pages_ ? pages_->submit() : Status{};
}

// Returns KV memory to the system once the last step that may use it has run.
void ModelRunner::release_kv() {
  if (!kv_.must_release()) return;
  std::size_t done = submitted_;  // steps
  for (std::size_t i = num_steps_; i > 0; --i) {
    const Step& step = steps_[(first_step_ + i - 1) % steps_.size()];
    if (!step.finished) done = step.number;
  }
  if (done >= release_after_) kv_.release();
}

Status ModelRunner::submit_step(const BatchPlan& plan) {
  if (num_steps_ > 0) {
    Step& last = steps_[(first_step_ + num_steps_ - 1) % steps_.size()];
    if (last.needs_host) RETURN_IF_ERROR(finish(last));
  }
  assign_slots(plan);
  Step& step = steps_[(first_step_ + num_steps_) % steps_.size()];
  step.plan = &plan;
  step.finished = false;
  step.follows = num_steps_ > 0;
  step.number = submitted_++;
  choose_sampling(step);
  RETURN_IF_ERROR(inputs_.fill(plan, last_tokens_, step.sampling));
  // The time in which the device waits for the host's inputs or their copies counts as idle.
  RETURN_IF_ERROR(device_.mark(Queue::kCompute, start_mark(step.number)));
  RETURN_IF_ERROR(
      inputs_.copy_blocks(plan, arena_->region_base(RegionKind::kKv), layout_.block_bytes));
  step.lost_kv = false;
  RETURN_IF_ERROR(plan.streamed_blocks > 0 ? run_streamed(step) : run_model(plan));
  step.work = work_of(plan);
  RETURN_IF_ERROR(fetch_tokens(step));
  last_mark_ = end_mark(step.number);
  ++num_steps_;
  return {};
}

// REQUIRES: the step was submitted last.
ComputedWork ModelRunner::work_of(const BatchPlan& plan) const {
  const auto tokens = static_cast<std::int32_t>(plan.token_ids.size());
  const auto logits = static_cast<std::int32_t>(plan.logit_positions.size());
  const ProductRows& products = graphs_.products(tokens, variant());
  Work rows = products.work(inputs_.num_tokens(), tokens);
  rows += products.work(inputs_.num_logits(), logits);
  const Work& pairs = inputs_.attention_work();
  return {rows.computed, rows.computed - rows.used, pairs.computed, pairs.computed - pairs.used};
}

Status ModelRunner::collect(StepResult& out) {
  CHECK(num_steps_ > 0);
  Step& step = steps_[first_step_];
  RETURN_IF_ERROR(finish(step));
  computed_work_ += step.work;
  std::swap(out, step.result);
  first_step_ = (first_step_ + 1) % steps_.size();
  --num_steps_;
  release_kv();
  return {};
}

Status ModelRunner::poll(std::vector<TransferResult>& completed) {
  if (pages_) RETURN_IF_ERROR(pages_->poll(completed));
  if (streamed_) streamed_->poll_moves(completed);
  return transfers_ ? transfers_->poll(completed) : Status{};
}

Status ModelRunner::wait_for_transfer(Duration at_most) {
  if (streamed_ && streamed_->moves()) {
    streamed_->wait_for_moves(at_most);
    return {};
  }
  if (transfers_ && !transfers_->idle()) return transfers_->wait(at_most);
  return pages_ && !pages_->idle() ? pages_->wait(at_most) : Status{};
}

Status ModelRunner::trace_steps(StepTrace* trace) {
  if (trace != nullptr && device_.traits().asynchronous) {
    return unsupported(device_.traits().name + " runs ops while the host goes on");
  }
  trace_ = trace;
  return {};
}

Status ModelRunner::run_model(const BatchPlan& plan) {
  const auto num_tokens = static_cast<std::int32_t>(plan.token_ids.size());
  RETURN_IF_ERROR(poll_stream());
  const ForwardVariant variant = this->variant();
  if (!stream_ || stream_->finished()) {
    if (trace_ != nullptr) {
      return graphs_.run_traced(
          device_, {num_tokens, static_cast<std::int32_t>(plan.rows.size())}, variant,
          [&](const StepCapacity& capacity) { forward(capacity, variant); }, *trace_);
    }
    return graphs_.run(device_, num_tokens, variant,
                       [&](const StepCapacity& capacity) { forward(capacity, variant); });
  }
  Status status;
  graphs_.run_eagerly(device_, num_tokens, variant, [&](const StepCapacity& capacity) {
    forward(capacity, variant, [&](std::size_t stage) {
      if (status) status = stream_->wait(stage);
    });
  });
  return status;
}

void ModelRunner::assign_slots(const BatchPlan& plan) {
  for (const SlotAssignment& assignment : plan.assignments) {
    const Sequence& sequence = *assignment.sequence;
    const std::span<const TokenId> tokens = sequence.tokens;
    const auto prompt_len = static_cast<std::size_t>(sequence.prompt_len);
    sampler_.assign(assignment.slot, sequence.request->sampling, sequence.choice,
                    tokens.first(prompt_len), tokens.subspan(prompt_len));
    max_outputs_[static_cast<std::size_t>(assignment.slot)] =
        sequence.max_len - sequence.prompt_len;
    pooler_.assign(assignment.slot, sequence.request->pooling);
  }
}

// Decides which rows the device samples; the host samples the rest.
void ModelRunner::choose_sampling(Step& step) const {
  step.sampling.clear();
  step.needs_host = false;
  for (const PlanRow& row : step.plan->rows) {
    // Only speculation has several positions per row, and it needs a verifying sampler.
    CHECK(row.num_logits <= 1);
    // The host scores prompts: these positions have no slot to sample for.
    step.sampling.resize(step.sampling.size() + static_cast<std::size_t>(row.num_scored));
    step.needs_host = step.needs_host || row.num_scored > 0 || pooler_.pools(row.slot);
    if (row.num_logits == 0) continue;
    CHECK(static_cast<std::size_t>(row.first_logit) == step.sampling.size());
    RowSampling sampling;
    if (device_.traits().asynchronous) {
      if (const auto draw = sampler_.draw_params({row.slot, row.output_index, nullptr, nullptr})) {
        sampling = {draw->uniform, draw->temperature, draw->top_p,
                    draw->min_p,   draw->top_k,       row.slot};
      }
    }
    step.needs_host = step.needs_host || sampling.slot < 0;
    step.sampling.push_back(sampling);
  }
}

void ModelRunner::forward(const StepCapacity& capacity, ForwardVariant variant) {
  forward(capacity, variant, [](std::size_t) {});
}

void ModelRunner::forward(const StepCapacity& capacity, ForwardVariant variant,
                          Decoder::BeforeStage before) {
  Ops& ops = device_.ops();
  decoder_.forward(ops, capacity, variant, before);
  if (!device_.traits().asynchronous) return;
  const TensorView& logits = decoder_.logits();
  ops.run(SampleParams{matrix_view(logits.data, logits.dtype, capacity.logits, config_->vocab_size),
                       inputs_.sampling(),
                       inputs_.last_tokens(),
                       device_tokens_,
                       {inputs_.num_logits(), capacity.logits}});
}

// Submits the copy of what the device samples, and marks the step's end.
Status ModelRunner::fetch_tokens(Step& step) {
  bool any = false;
  for (const RowSampling& sampling : step.sampling) {
    if (sampling.slot < 0) continue;
    any = true;
    last_tokens_[static_cast<std::size_t>(sampling.slot)] = -1 - sampling.slot;
  }
  if (any) {
    RETURN_IF_ERROR(device_.copy_to_host(step.tokens.data(), device_tokens_,
                                         step.sampling.size() * sizeof(std::int32_t)));
  }
  return device_.mark(Queue::kCompute, end_mark(step.number));
}

// Waits for the step and makes its result.
Status ModelRunner::finish(Step& step) {
  if (step.finished) return {};
  RETURN_IF_ERROR(device_.wait(Queue::kCompute, end_mark(step.number)));
  if (device_.traits().asynchronous) RETURN_IF_ERROR(measure(step));
  RETURN_IF_ERROR(check_pages());
  if (step.needs_host) RETURN_IF_ERROR(sample_on_host(step));
  const auto* tokens = reinterpret_cast<const TokenId*>(step.tokens.data());
  step.result.clear();
  std::size_t next = 0;
  for (const PlanRow& row : step.plan->rows) {
    const auto logit = static_cast<std::size_t>(row.first_logit);
    const auto scored = std::span<const SampledRow>(scored_).subspan(
        static_cast<std::size_t>(row.first_scored), static_cast<std::size_t>(row.num_scored));
    if (row.num_logits == 0) {
      append_result(nullptr, scored, step.result);
    } else if (step.sampling[logit].slot < 0) {
      append_result(&sampled_[next++], scored, step.result);
    } else {
      SampledRow sampled;
      sampled.token = tokens[logit];
      sampled.failed = sampled.token < 0;
      append_result(&sampled, scored, step.result);
    }
  }
  if (step.needs_host) RETURN_IF_ERROR(pool(step));
  if (step.lost_kv) step.result.rows.front().lost_kv = true;
  step.finished = true;
  return {};
}

Status ModelRunner::pool(Step& step) {
  for (std::size_t i = 0; i < step.plan->rows.size(); ++i) {
    const PlanRow& row = step.plan->rows[i];
    if (!pooler_.pools(row.slot)) continue;
    RETURN_IF_ERROR(pooler_.take(row, decoder_.normed(), decoder_.gathered(), step.result.rows[i],
                                 step.result));
  }
  return {};
}

Status ModelRunner::measure(const Step& step) {
  ASSIGN_OR_RETURN(const Duration busy,
                   device_.time_between(start_mark(step.number), end_mark(step.number)));
  device_time_.busy += busy;
  if (!step.follows) return {};
  ASSIGN_OR_RETURN(const Duration idle,
                   device_.time_between(end_mark(step.number - 1), start_mark(step.number)));
  device_time_.idle += idle;
  return {};
}

Status ModelRunner::sample_on_host(const Step& step) {
  sample_rows_.clear();
  score_rows_.clear();
  for (const PlanRow& row : step.plan->rows) {
    for (std::int32_t i = 0; i < row.num_scored; ++i) {
      ASSIGN_OR_RETURN(const float* logits, host_logits(row.first_logit - row.num_scored + i));
      const ScoredPosition& position =
          step.plan->scored[static_cast<std::size_t>(row.first_scored + i)];
      score_rows_.push_back({logits, position.token, position.alternatives});
    }
    if (row.num_logits == 0) continue;
    if (step.sampling[static_cast<std::size_t>(row.first_logit)].slot >= 0) continue;
    ASSIGN_OR_RETURN(const float* logits, host_logits(row.first_logit));
    sample_rows_.push_back(sample_row(row, logits));
  }
  RETURN_IF_ERROR(device_.synchronize(Queue::kCompute));
  if (look_) {
    for (const SampleRow& row : sample_rows_) {
      look_({row.logits, static_cast<std::size_t>(config_->vocab_size)});
    }
  }
  const std::span<SampledRow> sampled = std::span(sampled_).first(sample_rows_.size());
  sampler_.sample(sample_rows_, sampled);
  sampler_.score(score_rows_, std::span(scored_).first(score_rows_.size()));
  for (std::size_t i = 0; i < sampled.size(); ++i) {
    // The next step may already have a row of the failed sequence, which needs some valid token.
    last_tokens_[static_cast<std::size_t>(sample_rows_[i].slot)] = std::max(sampled[i].token, 0);
  }
  return {};
}

SampleRow ModelRunner::sample_row(const PlanRow& row, const float* logits) const {
  SampleRow sample{row.slot, row.output_index, logits};
  if (options_.steps_in_flight == 1) {
    sample.max_forced = max_outputs_[static_cast<std::size_t>(row.slot)] - row.output_index - 1;
  }
  return sample;
}

// The logits of a position in host memory. REQUIRES: the device is synchronized.
Result<const float*> ModelRunner::host_logits(std::int32_t row) {
  const std::int64_t offset = std::int64_t{row} * config_->vocab_size;
  const float* logits = decoder_.logits().as<const float>() + offset;
  if (device_.traits().host_accessible) return logits;
  float* copy = logits_copy_.data() + offset;
  RETURN_IF_ERROR(device_.copy_to_host(
      copy, logits, static_cast<std::size_t>(config_->vocab_size) * sizeof(float)));
  return copy;
}

void ModelRunner::append_result(const SampledRow* sampled, std::span<const SampledRow> scored,
                                StepResult& result) {
  RowResult out;
  out.first_prompt_logprob = static_cast<std::int32_t>(result.prompt_logprobs.size());
  bool scores_failed = false;
  for (const SampledRow& position : scored) {
    scores_failed = scores_failed || position.failed;
    out.num_prompt_logprobs += position.num_logprobs;
    for (std::int32_t i = 0; i < position.num_logprobs; ++i) {
      const ScoredToken& entry = position.logprobs[i];
      result.prompt_logprobs.push_back({entry.id, entry.score, i == 0 ? position.rank : i});
    }
  }
  out.first_token = static_cast<std::int32_t>(result.tokens.size());
  out.first_logprob = static_cast<std::int32_t>(result.logprobs.size());
  if (sampled != nullptr) {
    out.failed = sampled->failed;
    if (!sampled->failed && !scores_failed) {
      out.num_forced = sampled->num_forced;
      out.num_tokens = 1 + sampled->num_forced;
      result.tokens.push_back(sampled->token);
      result.tokens.insert(result.tokens.end(), sampled->forced,
                           sampled->forced + sampled->num_forced);
    }
    out.num_logprobs = sampled->num_logprobs;
    for (std::int32_t i = 0; i < sampled->num_logprobs; ++i) {
      result.logprobs.push_back({sampled->logprobs[i].id, sampled->logprobs[i].score});
    }
  }
  out.failed = out.failed || scores_failed;
  result.rows.push_back(out);
}

}  // namespace sluice
