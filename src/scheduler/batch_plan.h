// BatchPlan: what one step runs, and what moves beside it. The scheduler writes a plan, the
// executor carries it out, and nothing changes it in between. Plain data in vectors whose capacity
// is reserved once, so that steady state allocates nothing. Owner: the engine keeps one plan per
// step in flight and lends it to scheduler and executor.
//
// A row is one sequence's share of the step: `query_len` tokens that follow `context_len` tokens,
// which are in KV when the row runs. Prefill chunks, decodes, decodes after forced tokens
// (RowResult::num_forced) and (later) speculated tokens differ only in these numbers. Logits are
// wanted at listed positions: some to sample from, and at most SchedulerOptions::max_scored of a
// plan to score the tokens of prompts. Commit takes 0 to query_len tokens, and forced ones.
//
// Order within a plan: table updates, then copies, then rows. Plans run in the order in which they
// are submitted.
//
// A plan without rows may have transfers, copies with their table updates, and kv_blocks. It is
// submitted, and when submit() returns its work is done or started: it is never in flight, is not
// committed, and takes no step number. An empty plan is not submitted. Its table updates only make
// entries null; they may be dropped, since nothing reads those entries.
//
// Order rules for transfers and KV memory, with any number of steps in flight:
// 1. A transfer of plan k starts after the rows and copies of every plan before k have run. It may
//    run beside the rows of plan k and of later plans.
// 2. From the plan that names a transfer until the plan() call that sees its completion, no row or
//    copy writes what the transfer reads, and none reads or writes what the transfer writes. The
//    scheduler guarantees this by holding the resource; the executor does not check it.
// 3. No row or copy names a KV block at or above ResourceView::kv_backed_blocks. Growth that plan k
//    asks for may be used once a ResourceView shows it. When plan k asks for fewer blocks than are
//    backed, its copies move every used block from above the new end to below it, and no later plan
//    uses a block above the end. The executor returns that memory after plan k's copies and all
//    earlier steps have run. From submit() on, kv_backed_blocks() <= kv_blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/token_id.h"
#include "kv/block_changes.h"
#include "kv/paged_block.h"
#include "request/sequence.h"
#include "scheduler/transfer.h"

namespace sluice {

// In BatchPlan::token_ids: the token sampled last for this row's slot. The host may not know that
// token yet when it plans a second step while the first one runs; the executor does.
inline constexpr TokenId kTokenFromLastStep = -1;

struct PlanRow {
  SequenceId sequence = 0;
  std::int32_t slot = 0;         // [0, max_num_seqs): the executor's per-sequence state
  std::int32_t context_len = 0;  // tokens in KV before this row, steps in flight included
  std::int32_t query_len = 0;    // tokens this row computes, at least 1
  // Loads brought the last of these since the row before: no row computes them.
  std::int32_t loaded_len = 0;
  std::int32_t first_token = 0;  // index in token_ids of the row's query_len tokens
  std::int32_t first_logit = 0;  // index in logit_positions
  std::int32_t num_logits = 0;   // 0 for a prefill chunk that is not the prompt's last
  // Output index of the token that the row's first logits sample: the random counter.
  std::int32_t output_index = 0;
  // The logits just before first_logit score tokens of the prompt: BatchPlan::scored, from
  // first_scored on. They sample nothing.
  std::int32_t num_scored = 0;
  std::int32_t first_scored = 0;
};

// A token of a prompt whose log-probability is wanted, with those of the likeliest alternatives.
struct ScoredPosition {
  TokenId token = 0;
  std::int32_t alternatives = 0;
};

// A sequence that gets its slot in this plan: newly admitted, or admitted again after preemption.
// The executor builds the slot's sampling state from `sequence` before it runs the rows.
struct SlotAssignment {
  std::int32_t slot = 0;
  const Sequence* sequence = nullptr;  // valid until the step is committed
  // Where the weights of the sequence's adapter are while it holds the slot; -1: the base model.
  std::int32_t adapter_slot = -1;
};

// The file of a streamed sequence. It is made when something is moved to it or the sequence has its
// first row.
struct StreamFile {
  SequenceId sequence = 0;
  std::int32_t blocks = 0;  // of positions, that the sequence will have at most
};

struct BatchPlan {
  std::uint64_t step = 0;
  TimePoint planned_at;
  std::vector<PlanRow> rows;
  std::vector<TokenId> token_ids;             // all rows' tokens, in row order
  std::vector<std::int32_t> logit_positions;  // relative to the row's first token
  std::vector<ScoredPosition> scored;         // of all rows
  std::vector<SlotAssignment> assignments;
  std::vector<BlockTableUpdate> table_updates;
  std::vector<std::int32_t> block_ids;
  std::vector<BlockCopy> copies;
  std::vector<PlanTransfer> transfers;    // started with this plan
  std::vector<PagedBlock> pages;          // of the transfers that load or save blocks
  std::vector<std::int32_t> wrong_pages;  // of the tier, to be erased before the transfers
  // Not 0: the only row is of a streamed sequence (kv/stream_shape.h), and this is the
  // largest number of blocks of positions that it will have. Its table has its windows' blocks.
  std::int32_t streamed_blocks = 0;
  // The file of the transfers from or to a stream. They move whole pieces, by group in ascending
  // order, and end before the next ones are planned. A piece that is written may lack blocks that
  // no layer of its group sees any more, at its front.
  StreamFile stream_file;
  // 0: unchanged. Otherwise the executor shall back KV memory for this many blocks, the null block
  // included. A refusal is data (ResourceView::kv_growth_failed), never an error.
  std::int32_t kv_blocks = 0;
  std::vector<SequenceId> preempted;  // for metrics: this plan put them back in the queue
  // Sequences that this plan ended because they can never run again; finish_reason says why. They
  // are reported to the engine here, not by a commit.
  std::vector<Sequence*> ended;

  // Table changes and copies in the form that KvManager appends to.
  BlockChanges block_changes() { return {table_updates, block_ids, copies}; }

  // Whether the plan runs as a step, which is in flight from submit() until it is committed.
  bool has_rows() const { return !rows.empty(); }
  // Whether the executor has nothing to do.
  bool empty() const {
    return rows.empty() && transfers.empty() && copies.empty() && wrong_pages.empty() &&
           kv_blocks == 0;
  }
  void clear() {
    rows.clear();
    token_ids.clear();
    logit_positions.clear();
    scored.clear();
    assignments.clear();
    table_updates.clear();
    block_ids.clear();
    copies.clear();
    transfers.clear();
    pages.clear();
    wrong_pages.clear();
    streamed_blocks = 0;
    stream_file = {};
    kv_blocks = 0;
    preempted.clear();
    ended.clear();
  }
};

}  // namespace sluice
