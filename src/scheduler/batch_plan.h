// What one step runs: the scheduler writes it, the executor obeys it, nobody changes it between.
// Plain data in vectors whose capacity is reserved once, so that steady state allocates nothing.
// Owner: the engine keeps one plan per step in flight and lends it to scheduler and executor.
//
// A row is one sequence's share of the step: `query_len` tokens behind `context_len` tokens that
// are in KV when the row runs. Prefill chunks, decodes and (later) speculated tokens differ only
// in these numbers. Logits are wanted at listed positions; commit takes 0 to query_len tokens.
//
// A plan without rows is not run. It may name preempted sequences and, of table updates, only
// entries that became null; those may be dropped, since nothing reads them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/token_id.h"
#include "kv/block_changes.h"
#include "request/sequence.h"

namespace sluice {

// In BatchPlan::token_ids: "the token sampled last for this row's slot". The host may not know
// it yet when a second step is planned behind the first; the executor does.
inline constexpr TokenId kTokenFromLastStep = -1;

struct PlanRow {
  SequenceId sequence = 0;
  std::int32_t slot = 0;         // [0, max_num_seqs): the executor's per-sequence state
  std::int32_t context_len = 0;  // tokens in KV before this row, steps in flight included
  std::int32_t query_len = 0;    // tokens this row computes, at least 1
  std::int32_t first_token = 0;  // index in token_ids of the row's query_len tokens
  std::int32_t first_logit = 0;  // index in logit_positions
  std::int32_t num_logits = 0;   // 0 for a prefill chunk that is not the prompt's last
  // Output index of the token that the row's first logits sample: the random counter.
  std::int32_t output_index = 0;
};

// A sequence that got its slot with this plan: newly admitted, or again after preemption. The
// executor builds the slot's sampling state from `sequence` before it runs the rows.
struct SlotAssignment {
  std::int32_t slot = 0;
  const Sequence* sequence = nullptr;  // valid until the step is committed
};

struct BatchPlan {
  std::uint64_t step = 0;
  TimePoint planned_at;
  std::vector<PlanRow> rows;
  std::vector<TokenId> token_ids;             // all rows' tokens, in row order
  std::vector<std::int32_t> logit_positions;  // relative to the row's first token
  std::vector<SlotAssignment> assignments;
  std::vector<BlockTableUpdate> table_updates;
  std::vector<std::int32_t> block_ids;
  std::vector<BlockCopy> copies;
  std::vector<SequenceId> preempted;  // for metrics: back in the queue with this plan

  // Table changes and copies in the form that KvManager appends to.
  BlockChanges block_changes() { return {table_updates, block_ids, copies}; }

  bool empty() const { return rows.empty(); }
  void clear() {
    rows.clear();
    token_ids.clear();
    logit_positions.clear();
    assignments.clear();
    table_updates.clear();
    block_ids.clear();
    copies.clear();
    preempted.clear();
  }
};

}  // namespace sluice
