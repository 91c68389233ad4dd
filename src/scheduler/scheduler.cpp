#include "scheduler/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "scheduler/plan_pass.h"
#include "scheduler/policy.h"
#include "scheduler/scheduler_state.h"

namespace sluice {
namespace {

// Reserves a plan's vectors for the largest possible step. Block ids are the exception: many long
// prefix hits in one step may name more ids than there are blocks, and then that vector grows.
void reserve(const SchedulerOptions& options, const KvManager& kv, BatchPlan& plan) {
  const auto seqs = static_cast<std::size_t>(options.max_num_seqs);
  if (plan.rows.capacity() >= seqs) return;
  const auto groups = static_cast<std::size_t>(kv.num_groups());
  const auto blocks = static_cast<std::size_t>(kv.options().max_blocks);
  plan.rows.reserve(seqs);
  plan.token_ids.reserve(seqs + static_cast<std::size_t>(options.token_budget));
  const auto scored = static_cast<std::size_t>(options.max_scored);
  plan.logit_positions.reserve(seqs + scored);
  plan.scored.reserve(scored);
  plan.assignments.reserve(seqs);
  // One update each for: hits, blocks that left the window, copied, appended, loaded, moved down.
  plan.table_updates.reserve(seqs * groups * 6);
  plan.block_ids.reserve(2 * blocks);
  plan.copies.reserve(std::max(seqs * groups, std::size_t{KvSizer::kMovesPerPlan}));
  const std::size_t paged = kv.tier().num_pages() > 0 ? blocks : 0;
  plan.transfers.reserve(static_cast<std::size_t>(options.adapters.num_slots) + paged);
  plan.pages.reserve(paged);
  plan.preempted.reserve(seqs);
  plan.ended.reserve(seqs);
}

SchedulerOptions planned_options(SchedulerOptions options, const Policy* policy) {
  CHECK(policy != nullptr);
  CHECK(!options.time_budget || policy->plans_by_time());
  options.token_budget = policy->token_budget(options);
  return options;
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, KvManager& kv, std::unique_ptr<Policy> policy)
    : state_(std::make_unique<SchedulerState>(planned_options(options, policy.get()), kv)),
      policy_(std::move(policy)) {}

Scheduler::~Scheduler() = default;

Status Scheduler::add(Sequence& sequence) {
  CHECK(sequence.request != nullptr && sequence.state == SequenceState::kWaiting);
  const std::size_t given =
      sequence.tokens.empty() ? sequence.request->prompt.size() : sequence.tokens.size();
  const std::size_t resumed = sequence.tokens.empty() ? 0 : sequence.request->resumed.size();
  CHECK(static_cast<std::size_t>(sequence.prompt_len) + resumed == given);
  const SchedulerOptions& options = state_->options;
  if (sequence.prompt_len < 1) return invalid_argument("prompt: has no tokens, needs at least 1");
  if (sequence.prompt_len >= options.max_model_len) {
    return invalid_argument(
        fmt::format("prompt: has {} tokens; the context is {} tokens, prompt and output together",
                    sequence.prompt_len, options.max_model_len));
  }
  const SamplingParams& sampling = sequence.request->sampling;
  if (sampling.max_tokens < 1) {
    return invalid_argument(
        fmt::format("max_tokens must be at least 1, got {}", sampling.max_tokens));
  }
  if (sampling.prompt_logprobs >= 0 && (options.max_scored == 0 || !policy_->splits_prompts())) {
    return unsupported(fmt::format(
        "prompt_logprobs: the policy {} never splits a prompt, which log-probabilities of prompts "
        "need; use --scheduler stall-free",
        policy_->name()));
  }
  const std::int64_t wanted = std::int64_t{sequence.prompt_len} + sampling.max_tokens;
  const auto max_len =
      static_cast<std::int32_t>(std::min<std::int64_t>(wanted, options.max_model_len));
  RETURN_IF_ERROR(state_->check_room(sequence, max_len));
  const bool streamed =
      state_->kv.blocks_needed(max_len - 1) > state_->kv_sizer.most_blocks_of_a_sequence();
  const std::int32_t adapter = sequence.request->adapter;
  const AdapterOptions& adapters = options.adapters;
  if (adapter < -1 || (adapter >= 0 && adapters.num_slots == 0) ||
      adapter >= adapters.num_adapters) {
    return not_found(fmt::format("there is no adapter {}", adapter));
  }
  sequence.max_len = max_len;
  if (sampling.n > 1) ++state_->choices[sequence.request].alive;
  sequence.ticket = state_->next_ticket++;
  const Request& request = *sequence.request;
  const WaitingEntry entry{SchedulerState::place_of(sequence), &sequence,
                           state_->clients.arrive(request.client_key, request.client_weight),
                           adapter};
  if (streamed) {
    const std::int32_t size = state_->kv.block_size();
    sequence.streamed_blocks = (max_len - 1 + size - 1) / size;
    state_->enqueue_stream(entry);
  } else {
    state_->enqueue(entry);
  }
  state_->kv_sizer.note_activity();
  return {};
}

void Scheduler::cancel(Sequence& sequence, FinishReason reason) {
  if (sequence.state == SequenceState::kFinished || sequence.cancel_requested) return;
  if (sequence.state == SequenceState::kWaiting && sequence.streamed_blocks > 0) {
    state_->end_waiting_stream(sequence, reason);
    return;
  }
  if (sequence.state == SequenceState::kWaiting) {
    const std::size_t position = state_->waiting.find(SchedulerState::place_of(sequence));
    CHECK(position < state_->waiting.entries().size());
    state_->finish(sequence, state_->dequeue(position).client, reason);
    return;
  }
  if (state_->running.in_flight[RunningSet::index(sequence.slot)] == 0) {
    state_->finish_running(sequence.slot, reason);
    return;
  }
  sequence.cancel_requested = true;
  sequence.cancel_reason = reason;
  state_->leave_order(sequence.slot);
}

void Scheduler::plan(TimePoint now, const ResourceView& resources, BatchPlan& plan) {
  plan.clear();
  reserve(state_->options, state_->kv, plan);
  plan.step = state_->next_step;
  plan.planned_at = now;
  std::fill(state_->running.held.begin(), state_->running.held.end(), std::uint8_t{0});
  state_->kv_sizer.begin(now, resources);
  state_->take_completions(now, resources, plan);
  state_->waiting.compact();
  PlanPass pass(*state_, now, resources, plan);
  pass.keep_kv_limit();
  state_->plan_loads(now, plan);
  if (!state_->pager.back().empty()) {
    state_->pager.back().plan_more(state_->running.next, state_->next_transfer, plan);
  }
  pass.keep_streamed();
  pass.admit_stream();
  if (!pass.stream_is_due()) {
    pass.make_room_for_starved();
    if (policy_->displaces()) pass.make_room_for_priority(policy_->reservation());
    policy_->plan(pass);
  }
  if (!plan.has_rows()) {
    pass.plan_stream();
    if (plan.has_rows()) policy_->charge_streamed(pass);
  } else {
    state_->streams.others_ran = true;
  }
  pass.finish();
  state_->pager.plan_saves(resources.tier_accepts_saves, SavesBesideLoads::kNo,
                           plan.has_rows() ? SaveHaste::kEasy : SaveHaste::kIdle,
                           state_->next_transfer, plan);
  if (!plan.has_rows()) return;
  ++state_->next_step;
}

void Scheduler::take_memory(TimePoint now, const ResourceView& resources) {
  state_->kv_sizer.begin(now, resources);
}

void Scheduler::limit_step(Duration longest) {
  CHECK(longest > Duration(0));
  state_->step_limit = longest;
}

std::int32_t Scheduler::num_waiting() const {
  return static_cast<std::int32_t>(state_->waiting.size() + state_->streams.waiting.size());
}

std::int32_t Scheduler::num_running() const {
  return static_cast<std::int32_t>(state_->running.order.size()) + state_->running.num_draining +
         (state_->streams.slot < 0 ? 0 : 1);
}

std::optional<TimePoint> Scheduler::wake_at() const { return state_->kv_sizer.wake_at(); }

const PagingStats& Scheduler::paging_stats() const { return state_->pager.stats(); }

bool Scheduler::keeps_stream() const { return state_->pager.stream().keeps_file(); }

bool Scheduler::keeps_stream(SequenceId sequence) const {
  return keeps_stream() && state_->pager.stream().file() == sequence;
}

std::optional<SequenceId> Scheduler::take_ended_stream() {
  return state_->pager.stream().take_ended();
}

void Scheduler::check_integrity() const { state_->check_integrity(); }

}  // namespace sluice
