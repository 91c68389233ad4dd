// BatchInputs: the persistent input buffers of a model's forward pass, which it fills from a
// BatchPlan. Addresses never change; each step changes only contents: tokens, positions, the KV
// slots to write, lengths, rows' slots, logit positions, and the counts that tell ops how much of
// each buffer is in use. Block tables persist on the device; only changed entries are copied.
//
// Copies to the device run asynchronously, so each step in flight has its own staging memory.
//
// Owner: the model runner. Threads: the engine's thread. fill() allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/arena.h"
#include "device/device.h"
#include "device/host_buffer.h"
#include "device/lora_batch.h"
#include "model/decoder.h"
#include "scheduler/batch_plan.h"

namespace sluice {

// The attention layers of one KV group, as plan_attention needs them.
struct GroupAttention {
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t window = 0;
  std::int32_t num_layers = 1;
};

struct BatchInputsOptions {
  StepCapacity capacity;
  std::int32_t max_slots = 0;
  std::int32_t table_width = 0;  // blocks of the longest sequence
  std::int32_t block_size = 0;
  std::vector<GroupAttention> groups;
  std::int32_t steps_in_flight = 1;  // steps that are filled and may not have run
  std::int32_t adapter_slots = 0;    // 0: no step has adapters
  std::string model_id = "model";
};

class BatchInputs {
 public:
  // Adds the buffers to `arena`.
  BatchInputs(const BatchInputsOptions& options, const Ops& ops, ArenaPlan& arena);

  // REQUIRES: the arena's inputs are backed.
  Status bind(const Arena& arena, Device& device);

  // Everything but `layers` and the memory of adapters.
  DecoderInputs decoder_inputs() const;
  const std::int32_t* num_tokens() const { return on_device<std::int32_t>(counts_); }
  const std::int32_t* num_logits() const { return on_device<std::int32_t>(counts_) + 2; }
  const RowSampling* sampling() const { return on_device<RowSampling>(sampling_); }
  std::int32_t* last_tokens() const { return device_last_tokens_; }

  // Writes the step's inputs. `last_tokens`, by slot, replaces kTokenFromLastStep: a token, or the
  // code that makes the embedding read a token in device memory (EmbedParams). `sampling`: by logit
  // position, for the rows that the device samples. REQUIRES: at most steps_in_flight - 1 earlier
  // steps have not run yet.
  Status fill(const BatchPlan& plan, std::span<const TokenId> last_tokens,
              std::span<const RowSampling> sampling);

  // A slot's blocks in the first group, as of the step that was filled last.
  std::span<const std::int32_t> table(std::int32_t slot) const {
    const auto width = static_cast<std::size_t>(options_.table_width);
    return std::span(groups_.front().tables).subspan(static_cast<std::size_t>(slot) * width, width);
  }

  // Whether a token of the step that was filled last has an adapter.
  bool uses_adapters() const { return uses_adapters_; }

  // The query-key pairs, over all heads and layers, of the step that was filled last.
  const Work& attention_work() const { return attention_work_; }

  // Submits the plan's block copies. Call after fill() and before the rows run.
  Status copy_blocks(const BatchPlan& plan, std::byte* kv_base, std::int64_t block_bytes);
  // Runs the table updates and block copies of a plan without rows, and waits for them. REQUIRES:
  // as fill().
  Status move_blocks(const BatchPlan& plan, std::byte* kv_base, std::int64_t block_bytes);

 private:
  struct Group {
    std::vector<std::int32_t> tables;  // host copy, [slots, table_width]
    std::int32_t* device_tables = nullptr;
    std::int64_t* device_slot_mapping = nullptr;
    AttentionPlanLimits plan_limits;
    std::size_t plan_offset = 0;  // in the staging memory
    void* device_plan = nullptr;
    std::size_t slot_mapping_offset = 0;  // in the staging memory
  };

  std::string buffer_name(std::string_view name) const;
  std::size_t add_staged(std::size_t bytes);
  Status update_tables(const BatchPlan& plan);
  void fill_rows(const BatchPlan& plan, std::span<const TokenId> last_tokens);
  void fill_slot_mapping(const BatchPlan& plan);
  void group_by_adapter(const BatchPlan& plan);
  Status plan_attention(const BatchPlan& plan);

  // A piece of the staging memory; the device's copy has the same layout.
  template <class T>
  T* staged(std::size_t offset) {
    return reinterpret_cast<T*>(staging_[filled_ % staging_.size()].data() + offset);
  }
  template <class T>
  T* on_device(std::size_t offset) const {
    return reinterpret_cast<T*>(device_base_ + offset);
  }

  BatchInputsOptions options_;
  Device* device_ = nullptr;
  std::int32_t max_copies_ = 0;
  std::size_t max_table_ids_ = 0;
  std::vector<Group> groups_;
  Work attention_work_;

  std::vector<std::int32_t> adapter_of_slot_;   // of the sequence in each slot; -1: none
  std::vector<std::int32_t> adapter_of_token_;  // of the step
  LoraGrouping grouping_;
  bool uses_adapters_ = false;

  // The inputs that every step has are one piece at the front, so that one copy moves them all.
  std::vector<HostBuffer> staging_;  // used in turn
  std::size_t filled_ = 0;           // steps so far
  std::size_t staging_bytes_ = 0;
  std::size_t step_bytes_ = 0;  // of the piece
  std::byte* device_base_ = nullptr;
  std::int32_t* device_copies_ = nullptr;  // [1 + 2 * max_copies]: count, then pairs
  std::int32_t* device_last_tokens_ = nullptr;
  // Offsets of the pieces.
  std::size_t counts_ = 0;  // tokens, sequences, logits, segments of adapters
  std::size_t token_ids_ = 0;
  std::size_t positions_ = 0;
  std::size_t cu_seqlens_q_ = 0;
  std::size_t seq_lens_ = 0;
  std::size_t row_slots_ = 0;
  std::size_t logit_indices_ = 0;
  std::size_t sampling_ = 0;
  std::size_t lora_tokens_ = 0;
  std::size_t lora_segments_ = 0;
  std::size_t table_ids_ = 0;
  std::size_t copies_ = 0;
};

}  // namespace sluice
