#include "engine/batch_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace sluice {
namespace {

std::size_t bytes_of_ints(std::int64_t count) {
  return static_cast<std::size_t>(count) * sizeof(std::int32_t);
}

}  // namespace

BatchInputs::BatchInputs(const BatchInputsOptions& options, const Ops& ops, ArenaPlan& arena)
    : options_(options),
      groups_(options.groups.size()),
      adapter_of_slot_(static_cast<std::size_t>(options.max_slots), -1),
      grouping_(options.adapter_slots) {
  const StepCapacity& most = options.capacity;
  counts_ = add_staged(bytes_of_ints(4));  // NOLINT: offsets are given out in this order
  token_ids_ = add_staged(bytes_of_ints(most.tokens));
  positions_ = add_staged(bytes_of_ints(most.tokens));
  cu_seqlens_q_ = add_staged(bytes_of_ints(most.seqs + 1));
  seq_lens_ = add_staged(bytes_of_ints(most.seqs));
  row_slots_ = add_staged(bytes_of_ints(most.seqs));
  logit_indices_ = add_staged(bytes_of_ints(most.logits));
  sampling_ = add_staged(static_cast<std::size_t>(most.logits) * sizeof(RowSampling));
  const std::int64_t table_entries = std::int64_t{options.max_slots} * options.table_width;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    groups_[g].slot_mapping_offset =
        add_staged(static_cast<std::size_t>(most.tokens) * sizeof(std::int64_t));
  }
  if (options.adapter_slots > 0) {
    adapter_of_token_.resize(static_cast<std::size_t>(most.tokens));
    lora_tokens_ = add_staged(bytes_of_ints(most.tokens));
    lora_segments_ =
        add_staged(static_cast<std::size_t>(max_lora_segments(most.tokens, options.adapter_slots)) *
                   sizeof(LoraSegment));
  }
  step_bytes_ = staging_bytes_;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    groups_[g].tables.resize(static_cast<std::size_t>(table_entries), 0);
    arena.add(RegionKind::kInputs, buffer_name(fmt::format("block_tables{}", g)),
              bytes_of_ints(table_entries));
    const GroupAttention& a = options.groups[g];
    groups_[g].plan_limits = {most.tokens, most.seqs,      options.table_width * options.block_size,
                              a.num_heads, a.num_kv_heads, a.head_dim,
                              a.window};
    const AttentionPlanSize plan = ops.attention_plan_size(groups_[g].plan_limits);
    groups_[g].plan_offset = add_staged(static_cast<std::size_t>(plan.plan_bytes));
    arena.add(RegionKind::kInputs, buffer_name(fmt::format("attention_plan{}", g)),
              static_cast<std::size_t>(std::max<std::int64_t>(plan.device_bytes, 1)));
  }
  arena.add(RegionKind::kInputs, buffer_name("step"), step_bytes_);
  arena.add(RegionKind::kInputs, buffer_name("last_tokens"), bytes_of_ints(options.max_slots));
  // Each table has room for the most entries that one step can change; an entry that changes twice
  // counts once.
  max_table_ids_ = static_cast<std::size_t>(table_entries) * groups_.size();
  table_ids_ = add_staged(bytes_of_ints(static_cast<std::int64_t>(max_table_ids_)));
  // A step usually copies one shared block per row and group; more copies take several calls.
  max_copies_ = most.seqs * static_cast<std::int32_t>(std::max<std::size_t>(groups_.size(), 1));
  const std::int64_t copy_ints = 1 + 2 * std::int64_t{max_copies_};
  copies_ = add_staged(bytes_of_ints(copy_ints));
  arena.add(RegionKind::kInputs, buffer_name("block_copies"), bytes_of_ints(copy_ints));
}

std::string BatchInputs::buffer_name(std::string_view name) const {
  return fmt::format("{}/{}", options_.model_id, name);
}

std::size_t BatchInputs::add_staged(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;  // pieces do not share cache lines
  const std::size_t offset = staging_bytes_;
  staging_bytes_ = (offset + bytes + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

Status BatchInputs::bind(const Arena& arena, Device& device) {
  device_ = &device;
  for (std::int32_t i = 0; i < options_.steps_in_flight; ++i) {
    ASSIGN_OR_RETURN(HostBuffer buffer, HostBuffer::create(device, staging_bytes_));
    std::memset(buffer.data(), 0, staging_bytes_);
    staging_.push_back(std::move(buffer));
  }
  device_last_tokens_ = reinterpret_cast<std::int32_t*>(
      arena.address(RegionKind::kInputs, buffer_name("last_tokens")));
  device_base_ = arena.address(RegionKind::kInputs, buffer_name("step"));
  device_copies_ = reinterpret_cast<std::int32_t*>(
      arena.address(RegionKind::kInputs, buffer_name("block_copies")));
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    group.device_tables = reinterpret_cast<std::int32_t*>(
        arena.address(RegionKind::kInputs, buffer_name(fmt::format("block_tables{}", g))));
    group.device_plan =
        arena.address(RegionKind::kInputs, buffer_name(fmt::format("attention_plan{}", g)));
    group.device_slot_mapping = on_device<std::int64_t>(group.slot_mapping_offset);
  }
  return {};
}

DecoderInputs BatchInputs::decoder_inputs() const {
  CHECK(device_ != nullptr);
  DecoderInputs inputs;
  inputs.token_ids = on_device<std::int32_t>(token_ids_);
  inputs.last_tokens = device_last_tokens_;
  inputs.positions = on_device<std::int32_t>(positions_);
  inputs.cu_seqlens_q = on_device<std::int32_t>(cu_seqlens_q_);
  inputs.seq_lens = on_device<std::int32_t>(seq_lens_);
  inputs.row_slots = on_device<std::int32_t>(row_slots_);
  inputs.logit_indices = on_device<std::int32_t>(logit_indices_);
  inputs.num_tokens = num_tokens();
  inputs.num_seqs = inputs.num_tokens + 1;
  inputs.num_logits = num_logits();
  if (options_.adapter_slots > 0) {
    inputs.adapters.tokens = on_device<std::int32_t>(lora_tokens_);
    inputs.adapters.segments = on_device<LoraSegment>(lora_segments_);
    inputs.adapters.num_segments = inputs.num_tokens + 3;
  }
  for (const Group& group : groups_) {
    inputs.groups.push_back(
        {group.device_slot_mapping, group.device_tables, options_.table_width, group.device_plan});
  }
  return inputs;
}

Status BatchInputs::fill(const BatchPlan& plan, std::span<const TokenId> last_tokens,
                         std::span<const RowSampling> sampling) {
  ++filled_;
  RETURN_IF_ERROR(update_tables(plan));
  fill_rows(plan, last_tokens);
  CHECK(sampling.size() <= static_cast<std::size_t>(options_.capacity.logits));
  std::copy(sampling.begin(), sampling.end(), staged<RowSampling>(sampling_));
  fill_slot_mapping(plan);
  group_by_adapter(plan);
  RETURN_IF_ERROR(plan_attention(plan));
  return device_->copy_to_device(device_base_, staged<std::byte>(0), step_bytes_);
}

Status BatchInputs::update_tables(const BatchPlan& plan) {
  std::size_t used = 0;  // of the staged ids
  for (const BlockTableUpdate& update : plan.table_updates) {
    Group& group = groups_[static_cast<std::size_t>(update.group)];
    CHECK(update.slot < options_.max_slots &&
          update.first_entry + update.count <= options_.table_width);
    const std::size_t entry =
        static_cast<std::size_t>(update.slot) * static_cast<std::size_t>(options_.table_width) +
        static_cast<std::size_t>(update.first_entry);
    const auto count = static_cast<std::size_t>(update.count);
    if (used + count > max_table_ids_) {
      // The device must have read the ids staged before they are overwritten.
      RETURN_IF_ERROR(device_->synchronize(Queue::kCompute));
      used = 0;
    }
    std::int32_t* ids = staged<std::int32_t>(table_ids_) + used;
    used += count;
    std::copy_n(plan.block_ids.data() + update.first_id, count, ids);
    std::copy_n(ids, count, group.tables.begin() + static_cast<std::ptrdiff_t>(entry));
    RETURN_IF_ERROR(
        device_->copy_to_device(group.device_tables + entry, ids, bytes_of_ints(update.count)));
  }
  return {};
}

void BatchInputs::fill_rows(const BatchPlan& plan, std::span<const TokenId> last_tokens) {
  auto* token_ids = staged<std::int32_t>(token_ids_);
  auto* positions = staged<std::int32_t>(positions_);
  auto* cu_seqlens_q = staged<std::int32_t>(cu_seqlens_q_);
  auto* seq_lens = staged<std::int32_t>(seq_lens_);
  auto* row_slots = staged<std::int32_t>(row_slots_);
  auto* logit_indices = staged<std::int32_t>(logit_indices_);
  CHECK(static_cast<std::int64_t>(plan.token_ids.size()) <= options_.capacity.tokens);
  CHECK(static_cast<std::int64_t>(plan.rows.size()) <= options_.capacity.seqs);
  CHECK(static_cast<std::int64_t>(plan.logit_positions.size()) <= options_.capacity.logits);
  std::int32_t end = 0;
  for (std::size_t r = 0; r < plan.rows.size(); ++r) {
    const PlanRow& row = plan.rows[r];
    CHECK(row.first_token == end && row.query_len > 0);
    cu_seqlens_q[r] = row.first_token;
    seq_lens[r] = row.context_len + row.query_len;
    row_slots[r] = row.slot;
    for (std::int32_t i = 0; i < row.query_len; ++i) {
      const TokenId token =
          plan.token_ids[static_cast<std::size_t>(end) + static_cast<std::size_t>(i)];
      token_ids[end + i] =
          token == kTokenFromLastStep ? last_tokens[static_cast<std::size_t>(row.slot)] : token;
      positions[end + i] = row.context_len + i;
    }
    for (std::int32_t i = -row.num_scored; i < row.num_logits; ++i) {
      const std::int32_t index = row.first_logit + i;
      logit_indices[index] = end + plan.logit_positions[static_cast<std::size_t>(index)];
    }
    end += row.query_len;
  }
  cu_seqlens_q[plan.rows.size()] = end;
  auto* counts = staged<std::int32_t>(counts_);
  counts[0] = end;
  counts[1] = static_cast<std::int32_t>(plan.rows.size());
  counts[2] = static_cast<std::int32_t>(plan.logit_positions.size());
}

// Lists the tokens of rows with adapters.
void BatchInputs::group_by_adapter(const BatchPlan& plan) {
  for (const SlotAssignment& assignment : plan.assignments) {
    CHECK(assignment.adapter_slot < options_.adapter_slots);
    adapter_of_slot_[static_cast<std::size_t>(assignment.slot)] = assignment.adapter_slot;
  }
  std::int32_t segments = 0;
  if (options_.adapter_slots > 0) {
    for (const PlanRow& row : plan.rows) {
      std::fill_n(adapter_of_token_.begin() + row.first_token, row.query_len,
                  adapter_of_slot_[static_cast<std::size_t>(row.slot)]);
    }
    const std::int32_t most = max_lora_segments(options_.capacity.tokens, options_.adapter_slots);
    segments = grouping_.write(
        std::span(adapter_of_token_).first(plan.token_ids.size()),
        {staged<std::int32_t>(lora_tokens_), static_cast<std::size_t>(options_.capacity.tokens)},
        {staged<LoraSegment>(lora_segments_), static_cast<std::size_t>(most)});
  }
  staged<std::int32_t>(counts_)[3] = segments;
  uses_adapters_ = segments > 0;
}

void BatchInputs::fill_slot_mapping(const BatchPlan& plan) {
  if (plan.streamed_blocks > 0) return;  // its row has slots of its own
  const std::int32_t block_size = options_.block_size;
  for (Group& group : groups_) {
    auto* slot_mapping = staged<std::int64_t>(group.slot_mapping_offset);
    for (const PlanRow& row : plan.rows) {
      const std::int32_t* table =
          group.tables.data() + static_cast<std::int64_t>(row.slot) * options_.table_width;
      for (std::int32_t i = 0; i < row.query_len; ++i) {
        const std::int32_t position = row.context_len + i;
        const std::int64_t block = table[position / block_size];
        CHECK(block > 0);  // block 0 is never written
        slot_mapping[row.first_token + i] = block * block_size + position % block_size;
      }
    }
  }
}

Status BatchInputs::plan_attention(const BatchPlan& plan) {
  Ops& ops = device_->ops();
  attention_work_ = {};
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    AttentionPlanParams params;
    params.limits = group.plan_limits;
    params.cu_seqlens_q = staged<std::int32_t>(cu_seqlens_q_);
    params.seq_lens = staged<std::int32_t>(seq_lens_);
    params.num_seqs = static_cast<std::int32_t>(plan.rows.size());
    params.plan = staged<std::byte>(group.plan_offset);
    const Work work = ops.attention_work(params);
    const std::int64_t layers = options_.groups[g].num_layers;
    attention_work_ += {work.used * layers, work.computed * layers};
    const std::int64_t bytes = ops.plan_attention(params);
    if (bytes == 0) continue;
    RETURN_IF_ERROR(
        device_->copy_to_device(group.device_plan, params.plan, static_cast<std::size_t>(bytes)));
  }
  return {};
}

// Borrows the staging memory of the step that will be filled next; the copies have run on return.
Status BatchInputs::move_blocks(const BatchPlan& plan, std::byte* kv_base,
                                std::int64_t block_bytes) {
  ++filled_;
  Status status = update_tables(plan);
  if (status) status = copy_blocks(plan, kv_base, block_bytes);
  if (status) status = device_->synchronize(Queue::kCompute);
  --filled_;
  return status;
}

Status BatchInputs::copy_blocks(const BatchPlan& plan, std::byte* kv_base,
                                std::int64_t block_bytes) {
  const std::size_t total = plan.copies.size();
  auto* copies = staged<std::int32_t>(copies_);
  for (std::size_t first = 0; first < total; first += static_cast<std::size_t>(max_copies_)) {
    // The device must have read the pairs staged before they are overwritten.
    if (first > 0) RETURN_IF_ERROR(device_->synchronize(Queue::kCompute));
    const std::size_t count = std::min(total - first, static_cast<std::size_t>(max_copies_));
    copies[0] = static_cast<std::int32_t>(count);
    for (std::size_t i = 0; i < count; ++i) {
      copies[1 + 2 * i] = plan.copies[first + i].source;
      copies[2 + 2 * i] = plan.copies[first + i].target;
    }
    RETURN_IF_ERROR(
        device_->copy_to_device(device_copies_, copies, (1 + 2 * count) * sizeof(std::int32_t)));
    device_->ops().run(
        CopyBlocksParams{kv_base, block_bytes, device_copies_ + 1, {device_copies_, max_copies_}});
  }
  return {};
}

}  // namespace sluice
