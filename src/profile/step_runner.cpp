#include "profile/step_runner.h"

#include <algorithm>

#include "base/check.h"

namespace sluice {

StepRunner::StepRunner(const StepLimits& limits, Executor& executor, const Clock& clock)
    : limits_(limits), executor_(executor), clock_(clock), kv_(limits.kv), random_(1) {
  CHECK(limits.max_tokens > 0 && limits.vocab_size > 0);
  request_.prompt = {0};
  request_.sampling.max_tokens = limits.kv.max_model_len;
  request_.sampling.ignore_eos = true;
  const auto slots = static_cast<std::size_t>(limits.kv.max_num_seqs);
  sequences_.resize(slots);
  assigned_.assign(slots, 0);
  for (std::size_t slot = 0; slot < slots; ++slot) {
    Sequence& sequence = sequences_[slot];
    sequence.id = slot + 1;
    sequence.request = &request_;
    sequence.tokens = {0};
    sequence.prompt_len = 1;
    sequence.slot = static_cast<std::int32_t>(slot);
  }
}

bool StepRunner::can_run(const StepShape& shape) const {
  const KvOptions& kv = limits_.kv;
  const bool chunk = shape.chunk_tokens > 0;
  const std::int32_t rows = shape.decode_rows + (chunk ? 1 : 0);
  if (rows < 1 || rows > kv.max_num_seqs || shape.tokens() > limits_.max_tokens) return false;
  if (shape.decode_rows > 0 && shape.decode_context + 1 > kv.max_model_len) return false;
  if (chunk && shape.chunk_context + shape.chunk_tokens > kv.max_model_len) return false;
  if (shape.chunk_tokens > kv.max_query_len) return false;
  std::int64_t blocks = shape.decode_rows * kv_.blocks_needed(shape.decode_context + 1);
  if (chunk) blocks += kv_.blocks_needed(shape.chunk_context + shape.chunk_tokens);
  return blocks <= kv_.num_usable_blocks();
}

// Takes blocks as a prompt in chunks does: blocks that leave the window are freed on the way.
void StepRunner::take_blocks(std::int32_t slot, std::int32_t context, std::int32_t count) {
  BlockChanges changes = plan_.block_changes();
  CHECK(kv_.admit(slot, {}, context + count, {}, changes));
  const std::int32_t longest = limits_.kv.max_query_len;
  for (std::int32_t first = 0; first < context; first += longest) {
    CHECK(kv_.extend(slot, first, std::min(longest, context - first), changes));
  }
  CHECK(kv_.extend(slot, context, count, changes));
}

void StepRunner::add_row(std::int32_t slot, std::int32_t context, std::int32_t count, bool logits) {
  const auto s = static_cast<std::size_t>(slot);
  take_blocks(slot, context, count);
  busy_slots_.push_back(slot);
  if (assigned_[s] == 0) plan_.assignments.push_back({slot, &sequences_[s]});
  assigned_[s] = 1;
  PlanRow row;
  row.sequence = sequences_[s].id;
  row.slot = slot;
  row.context_len = context;
  row.query_len = count;
  row.first_token = static_cast<std::int32_t>(plan_.token_ids.size());
  row.first_logit = static_cast<std::int32_t>(plan_.logit_positions.size());
  for (std::int32_t i = 0; i < count; ++i) {
    plan_.token_ids.push_back(
        static_cast<TokenId>(random_.below(static_cast<std::uint64_t>(limits_.vocab_size))));
  }
  if (logits) {
    row.num_logits = 1;
    plan_.logit_positions.push_back(count - 1);
  }
  plan_.rows.push_back(row);
}

void StepRunner::release_all() {
  for (const std::int32_t slot : busy_slots_) kv_.release(slot);
  busy_slots_.clear();
  const std::uint64_t next = plan_.step + 1;
  plan_.clear();
  plan_.step = next;
}

Result<Duration> StepRunner::run_plan() {
  const TimePoint start = clock_.now();
  RETURN_IF_ERROR(executor_.submit(plan_));
  RETURN_IF_ERROR(executor_.collect(result_));
  const Duration taken = clock_.now() - start;
  release_all();
  return taken;
}

Result<Duration> StepRunner::run(const StepShape& shape) {
  CHECK(can_run(shape));
  for (std::int32_t slot = 0; slot < shape.decode_rows; ++slot) {
    add_row(slot, shape.decode_context, 1, true);
  }
  if (shape.chunk_tokens > 0) {
    add_row(shape.decode_rows, shape.chunk_context, shape.chunk_tokens, false);
  }
  return run_plan();
}

// One block is computed, the others are copies of it.
Status StepRunner::fill_kv() {
  constexpr std::int32_t kCopiesPerStep = 4096;
  const std::int32_t filled = std::min(
      {kv_.block_size(), limits_.max_tokens, limits_.kv.max_query_len, limits_.kv.max_model_len});
  std::int32_t next = 1;
  const std::int32_t end = kv_.num_usable_blocks() + 1;
  while (next < end) {
    add_row(0, 0, filled, false);
    const BlockId source = kv_.table(0, 0).front();
    // The first step computes the block; later steps copy it before they compute it again, because
    // a freed block is taken first.
    if (plan_.step > 0) {
      const auto mine = [&](BlockId id) {
        const auto& ids = plan_.block_ids;
        return std::find(ids.begin(), ids.end(), id) != ids.end();
      };
      for (std::int32_t n = 0; n < kCopiesPerStep && next < end; ++n, ++next) {
        if (!mine(next)) plan_.copies.push_back({source, next});
      }
    }
    ASSIGN_OR_RETURN(const Duration taken, run_plan());
    static_cast<void>(taken);
  }
  return {};
}

}  // namespace sluice
