#include "engine/model_runner.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace sluice {
namespace {

// Layers of a group are alike but for what attention planning does not look at.
std::vector<GroupAttention> group_attention(const ModelConfig& config, const KvLayout& layout) {
  std::vector<GroupAttention> groups;
  for (const KvGroup& group : layout.groups) {
    const LayerConfig& layer = config.layers[static_cast<std::size_t>(group.layers.front())];
    groups.push_back({layer.num_heads, layer.num_kv_heads, layer.head_dim, group.window});
  }
  return groups;
}

StepCapacity step_capacity(const ModelRunnerOptions& options) {
  // Decodes are never cut, so a step may have one token per sequence whatever the budget says.
  return {std::max(options.token_budget, options.max_num_seqs), options.max_num_seqs,
          options.max_num_seqs};
}

BatchInputsOptions inputs_options(const ModelConfig& config, const KvLayout& layout,
                                  const ModelRunnerOptions& options) {
  BatchInputsOptions inputs;
  inputs.capacity = step_capacity(options);
  inputs.max_slots = options.max_num_seqs;
  inputs.table_width = options.table_width;
  inputs.block_size = layout.block_size;
  inputs.groups = group_attention(config, layout);
  return inputs;
}

Decoder::Options decoder_options(const ModelConfig& config, const ModelRunnerOptions& options) {
  Decoder::Options decoder;
  decoder.last_layer = config.num_layers;
  decoder.capacity = step_capacity(options);
  decoder.max_positions = options.max_model_len;
  return decoder;
}

}  // namespace

ModelRunner::ModelRunner(std::unique_ptr<ModelConfig> config, KvLayout layout, DType weights_dtype,
                         const ModelRunnerOptions& options, Device& device, ThreadPool& pool,
                         ArenaPlan& arena_plan)
    : config_(std::move(config)),
      layout_(std::move(layout)),
      options_(options),
      device_(device),
      capacity_(step_capacity(options)),
      decoder_(*config_, decoder_options(*config_, options), weights_dtype, device.traits(),
               arena_plan),
      inputs_(inputs_options(*config_, layout_, options), device.ops(), arena_plan),
      graphs_(options.graphs, capacity_),
      sampler_({config_->vocab_size, options.max_num_seqs, options.max_model_len, options.eos_ids},
               pool) {
  CHECK(options.steps_in_flight >= 1 &&
        options.steps_in_flight <= static_cast<int>(results_.size()));
  const auto slots = static_cast<std::size_t>(options.max_num_seqs);
  const auto rows = static_cast<std::size_t>(capacity_.logits);
  last_tokens_.resize(slots, kTokenFromLastStep);
  sample_rows_.reserve(rows);
  sampled_.resize(rows);
  for (StepResult& result : results_) {
    result.rows.reserve(static_cast<std::size_t>(capacity_.seqs));
    result.tokens.reserve(rows);
    result.logprobs.reserve(rows * kMaxRowLogprobs);
  }
}

Status ModelRunner::start(Arena arena, DecoderWeights weights) {
  arena_ = std::make_unique<Arena>(std::move(arena));
  inputs_.bind(*arena_, device_);
  if (!device_.traits().host_accessible) {
    logits_copy_.resize(static_cast<std::size_t>(capacity_.logits) *
                        static_cast<std::size_t>(config_->vocab_size));
  }
  return decoder_.bind(*arena_, device_, std::move(weights), decoder_inputs());
}

DecoderInputs ModelRunner::decoder_inputs() const {
  DecoderInputs inputs = inputs_.decoder_inputs();
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
  CHECK(!plan.empty() && num_results_ < options_.steps_in_flight);
  assign_slots(plan);
  RETURN_IF_ERROR(inputs_.fill(plan, last_tokens_));
  RETURN_IF_ERROR(
      inputs_.copy_blocks(plan, arena_->region_base(RegionKind::kKv), layout_.block_bytes));
  RETURN_IF_ERROR(graphs_.run(
      device_, static_cast<std::int32_t>(plan.token_ids.size()),
      [&](const StepCapacity& capacity) { decoder_.forward(device_.ops(), capacity); }));
  const auto next = static_cast<std::size_t>(first_result_ + num_results_) % results_.size();
  RETURN_IF_ERROR(sample(plan, results_[next]));
  ++num_results_;
  return {};
}

Status ModelRunner::collect(StepResult& out) {
  CHECK(num_results_ > 0);
  std::swap(out, results_[static_cast<std::size_t>(first_result_)]);
  first_result_ = (first_result_ + 1) % static_cast<int>(results_.size());
  --num_results_;
  return {};
}

void ModelRunner::assign_slots(const BatchPlan& plan) {
  for (const SlotAssignment& assignment : plan.assignments) {
    const Sequence& sequence = *assignment.sequence;
    const std::span<const TokenId> tokens = sequence.tokens;
    const auto prompt_len = static_cast<std::size_t>(sequence.prompt_len);
    sampler_.assign(assignment.slot, sequence.request->sampling, sequence.choice,
                    tokens.first(prompt_len), tokens.subspan(prompt_len));
  }
}

// Waits for the forward pass; the logits of `rows` positions, readable by the host.
Result<const float*> ModelRunner::host_logits(std::size_t rows) {
  const float* logits = decoder_.logits().as<const float>();
  if (!device_.traits().host_accessible) {
    const std::size_t bytes = rows * static_cast<std::size_t>(config_->vocab_size) * sizeof(float);
    RETURN_IF_ERROR(device_.copy_to_host(logits_copy_.data(), logits, bytes));
    logits = logits_copy_.data();
  }
  RETURN_IF_ERROR(device_.synchronize());
  return logits;
}

Status ModelRunner::sample(const BatchPlan& plan, StepResult& result) {
  ASSIGN_OR_RETURN(const float* logits, host_logits(plan.logit_positions.size()));
  sample_rows_.clear();
  for (const PlanRow& row : plan.rows) {
    // Several positions per row are speculation's, which needs a verifying sampler.
    CHECK(row.num_logits <= 1);
    if (row.num_logits == 0) continue;
    // Constrained decoding will put its mask in the last place.
    sample_rows_.push_back({row.slot, row.output_index,
                            logits + std::int64_t{row.first_logit} * config_->vocab_size, nullptr});
  }
  sampler_.sample(sample_rows_, std::span(sampled_).first(sample_rows_.size()));
  result.clear();
  std::size_t next = 0;
  for (const PlanRow& row : plan.rows) {
    append_result(row, row.num_logits > 0 ? &sampled_[next++] : nullptr, result);
  }
  return {};
}

void ModelRunner::append_result(const PlanRow& row, const SampledRow* sampled, StepResult& result) {
  RowResult out;
  out.first_token = static_cast<std::int32_t>(result.tokens.size());
  out.first_logprob = static_cast<std::int32_t>(result.logprobs.size());
  if (sampled != nullptr) {
    out.failed = sampled->failed;
    // A step planned behind this one may still run a failed row: with any token that exists.
    last_tokens_[static_cast<std::size_t>(row.slot)] = std::max(sampled->token, 0);
    if (!sampled->failed) {
      out.num_tokens = 1;
      result.tokens.push_back(sampled->token);
    }
    out.num_logprobs = sampled->num_logprobs;
    for (std::int32_t i = 0; i < sampled->num_logprobs; ++i) {
      result.logprobs.push_back({sampled->logprobs[i].id, sampled->logprobs[i].score});
    }
  }
  result.rows.push_back(out);
}

}  // namespace sluice
