#include "sim/replica.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/hash128.h"
#include "base/rng.h"
#include "scheduler/block_pager.h"
#include "scheduler/policy.h"

namespace sluice {
namespace {

// A plan may be empty while all sequences that could run are in flight. More empty plans in a row,
// with nothing in flight, mean that the policy is stuck.
constexpr int kMaxEmptyPlans = 4;

SchedulerOptions scheduler_options(const ReplicaOptions& options, std::int32_t stages) {
  return {.token_budget = options.token_budget,
          .max_num_seqs = options.max_num_seqs,
          .max_model_len = options.max_model_len,
          .eos_ids = {},
          .micro_batches = stages,
          .time_budget = options.time_budget,
          .turn_tokens = options.turn_tokens,
          .meeting_tokens = options.meeting_tokens,
          .adapters = options.adapters};
}

// Names the full blocks of shared prefixes: two names are equal if all pieces up to the block's end
// are.
void name_blocks(const WorkloadRequest& request, std::int32_t block_size,
                 std::vector<Hash128>& out) {
  out.clear();
  std::uint64_t chain = 0;
  const std::int32_t blocks = request.prompt_tokens / block_size;
  for (std::int32_t b = 0; b < blocks; ++b) {
    const std::int32_t last_token = (b + 1) * block_size - 1;
    const auto piece = static_cast<std::size_t>(last_token / kPrefixPieceTokens);
    if (piece >= request.prefix_pieces.size()) return;
    const auto in_piece = static_cast<std::uint64_t>(last_token % kPrefixPieceTokens);
    SplitMix64 mix(chain ^ request.prefix_pieces[piece]);
    chain = mix() + in_piece;
    out.push_back({chain, mix()});
  }
}

}  // namespace

// A request with its one sequence, and the client's view of it.
struct Replica::LiveRequest : Sequence {
  Request asked;
  Duration arrival{0};
  Duration first{0};
  Duration last{0};
  std::int32_t started_blocks = 0;  // for all that it has computed at any time
};

ReplicaStats& ReplicaStats::operator+=(const ReplicaStats& other) {
  steps += other.steps;
  tokens += other.tokens;
  preemptions += other.preemptions;
  cached_tokens += other.cached_tokens;
  adapter_loads += other.adapter_loads;
  saved_blocks += other.saved_blocks;
  loaded_blocks += other.loaded_blocks;
  peak_held_blocks += other.peak_held_blocks;
  peak_started_blocks += other.peak_started_blocks;
  pipeline += other.pipeline;
  return *this;
}

std::int32_t max_step_tokens(const ReplicaOptions& options) {
  const auto policy = make_policy(options.scheduler);
  CHECK(policy.has_value());
  return std::max((*policy)->token_budget(scheduler_options(options, 1)), options.max_num_seqs);
}

KvOptions replica_kv_options(const ReplicaOptions& options) {
  return {.block_size = options.block_size,
          .group_windows = {options.window},
          .num_blocks = options.num_blocks,
          .max_blocks = 0,
          .max_num_seqs = options.max_num_seqs,
          .max_model_len = options.max_model_len,
          .max_query_len = std::min(max_step_tokens(options), options.max_model_len),
          .tier_pages = options.tier_pages,
          .tier_eviction = {.by = options.tier_eviction,
                            .even_depth = options.even_context / options.block_size,
                            .window = options.window / options.block_size}};
}

Status check_replica_options(const ReplicaOptions& options) {
  ASSIGN_OR_RETURN(const auto policy, make_policy(options.scheduler));
  if (options.time_budget && !policy->plans_by_time()) {
    return invalid_argument(
        fmt::format("scheduler '{}' cannot plan by time; stall-free and vtc can", policy->name()));
  }
  const auto positive = [](const char* name, std::int64_t value) -> Status {
    if (value >= 1) return {};
    return invalid_argument(fmt::format("{} must be at least 1, got {}", name, value));
  };
  RETURN_IF_ERROR(positive("token_budget", options.token_budget));
  RETURN_IF_ERROR(positive("max_num_seqs", options.max_num_seqs));
  RETURN_IF_ERROR(positive("block_size", options.block_size));
  RETURN_IF_ERROR(positive("max_model_len", options.max_model_len - 1));
  return positive("num_blocks", options.num_blocks - 1);
}

Replica::Replica(const ReplicaOptions& options, StepCost& cost, ServingRecorder& recorder)
    : ready_(options.ready),
      kv_(replica_kv_options(options)),
      scheduler_(scheduler_options(options, cost.num_stages()), kv_,
                 make_policy(options.scheduler).value()),
      executor_(cost, options.step_jitter, options.seed, options.transfers, options.tier),
      recorder_(recorder),
      plans_(static_cast<std::size_t>(cost.num_stages())) {}

Replica::~Replica() = default;

ReplicaStats Replica::stats() const {
  ReplicaStats stats = stats_;
  stats.pipeline = executor_.times();
  stats.cached_tokens = kv_.prefix_stats().hit_tokens;
  stats.saved_blocks = scheduler_.paging_stats().saved_blocks;
  stats.loaded_blocks = scheduler_.paging_stats().loaded_blocks;
  return stats;
}

Replica::LiveRequest& Replica::take_request(const WorkloadRequest& request) {
  if (free_.empty()) {
    pool_.push_back(std::make_unique<LiveRequest>());
    free_.push_back(pool_.back().get());
  }
  LiveRequest& live = *free_.back();
  free_.pop_back();
  std::vector<TokenId> tokens = std::move(live.tokens);  // reuse its memory
  static_cast<Sequence&>(live) = Sequence{};
  live.tokens = std::move(tokens);
  live.tokens.assign(static_cast<std::size_t>(request.prompt_tokens), kSimulatedToken);
  live.id = next_id_++;
  live.prompt_len = request.prompt_tokens;
  live.request = &live.asked;
  live.asked.id = live.id;
  live.asked.arrival = TimePoint{request.arrival};
  live.asked.sampling.max_tokens = request.output_tokens;
  live.asked.adapter = request.adapter;
  name_blocks(request, kv_.block_size(), live.asked.block_hashes);
  live.arrival = request.arrival;
  live.started_blocks = 0;
  return live;
}

void Replica::add(const WorkloadRequest& request) {
  run_until(request.arrival);
  CHECK(now_ <= request.arrival);
  now_ = request.arrival;
  LiveRequest& live = take_request(request);
  ++load_;
  blocked_ = false;
  if (const Status queued = scheduler_.add(live); !queued) retire(live, queued.error().message);
}

Duration Replica::ready_at() const { return std::max(ready_, executor_.ready_at()); }

bool Replica::may_plan() const {
  return !blocked_ && executor_.in_flight() < executor_.max_in_flight() && ready_at() <= now_ &&
         scheduler_.has_work();
}

// The time of the next event that needs no new request.
std::optional<Duration> Replica::next_event() const {
  std::optional<Duration> next;
  const auto add = [&](Duration time) { next = next ? std::min(*next, time) : time; };
  if (executor_.in_flight() > 0) add(executor_.done_at());
  if (executor_.in_flight() < executor_.max_in_flight() && scheduler_.has_work()) {
    if (!blocked_) add(ready_at());
    if (const auto done = executor_.transfer_done_at()) add(std::max(*done, ready_at()));
  }
  return next;
}

void Replica::run_until(Duration limit) {
  while (now_ < limit) {
    while (executor_.in_flight() > 0 && executor_.done_at() <= now_) commit_step();
    const std::optional<Duration> transfer = executor_.transfer_done_at();
    if (transfer && *transfer <= now_) blocked_ = false;
    if (may_plan() && plan_step()) continue;
    const std::optional<Duration> next = next_event();
    if (!next) return;
    if (*next >= limit) return;
    now_ = std::max(now_, *next);
  }
}

void Replica::finish() {
  run_until(Duration::max());
  CHECK(!scheduler_.has_work());
}

void Replica::make_plan(BatchPlan& plan) {
  executor_.set_now(now_);
  completed_.clear();
  CHECK(executor_.poll(completed_).has_value());
  ResourceView resources;
  resources.completed = completed_;
  resources.tier_accepts_saves = kv_.tier().num_pages() > 0;
  scheduler_.plan(TimePoint{now_}, resources, plan);
  stats_.preemptions += static_cast<std::int64_t>(plan.preempted.size());
  stats_.adapter_loads += std::count_if(
      plan.transfers.begin(), plan.transfers.end(),
      [](const PlanTransfer& each) { return each.kind == TransferKind::kLoadAdapter; });
  for (Sequence* ended : plan.ended) {
    retire(static_cast<LiveRequest&>(*ended), failure_of(ended->finish_reason).message);
  }
  stats_.peak_held_blocks = std::max<std::int64_t>(stats_.peak_held_blocks, kv_.num_held_blocks());
  if (!plan.empty()) CHECK(executor_.submit(plan).has_value());
}

// False when no sequence can run now: all are in flight or wait for transfers.
bool Replica::plan_step() {
  BatchPlan& plan = plans_[next_plan_];
  for (int attempt = 0; attempt < kMaxEmptyPlans && scheduler_.has_work(); ++attempt) {
    make_plan(plan);
    if (plan.has_rows() || executor_.in_flight() > 0) break;
    if (plan.empty() && executor_.transfer_done_at()) break;
  }
  if (!plan.has_rows()) {
    CHECK(executor_.in_flight() > 0 || executor_.transfer_done_at() || !scheduler_.has_work());
    blocked_ = true;
    return false;
  }
  next_plan_ = (next_plan_ + 1) % plans_.size();
  ++stats_.steps;
  stats_.tokens += static_cast<std::int64_t>(plan.token_ids.size());
  return true;
}

void Replica::commit_step() {
  const auto waiting = static_cast<std::size_t>(executor_.in_flight());
  const std::size_t oldest = (next_plan_ + plans_.size() - waiting) % plans_.size();
  previous_commit_ = last_commit_;
  last_commit_ = executor_.done_at();
  CHECK(executor_.collect(result_).has_value());
  scheduler_.commit(plans_[oldest], result_, TimePoint{last_commit_}, commits_);
  blocked_ = false;
  even_gaps_ = 0;
  for (const RowCommit& commit : commits_) record(commit);
  if (even_gaps_ > 0)
    recorder_.add_token(last_commit_, last_commit_ - previous_commit_, even_gaps_);
}

void Replica::record(const RowCommit& commit) {
  CHECK(commit.sequence != nullptr);  // no client cancels
  LiveRequest& live = static_cast<LiveRequest&>(*commit.sequence);
  record_started(live, commit.finished);
  if (commit.num_tokens > 0) record_tokens(live, commit.num_tokens);
  if (commit.finished) retire(live, "");
}

void Replica::record_started(LiveRequest& live, bool finished) {
  const std::int32_t blocks =
      std::max(live.started_blocks, (live.computed + kv_.block_size() - 1) / kv_.block_size());
  started_blocks_ += blocks - live.started_blocks;
  live.started_blocks = blocks;
  stats_.peak_started_blocks = std::max(stats_.peak_started_blocks, started_blocks_);
  if (finished) started_blocks_ -= blocks;
}

void Replica::record_tokens(LiveRequest& live, std::int32_t count) {
  CHECK(count == 1);  // no policy here uses guesses
  if (live.output_len() == 1) {
    live.first = last_commit_;
    recorder_.add_first_token(last_commit_);
  } else if (live.last == previous_commit_) {
    ++even_gaps_;
  } else {
    recorder_.add_token(last_commit_, last_commit_ - live.last);
  }
  live.last = last_commit_;
}

void Replica::retire(LiveRequest& live, const std::string& error) {
  RequestRecord record;
  record.arrival = live.arrival;
  record.sent = live.arrival;
  record.prompt_tokens = live.prompt_len;
  record.error = error;
  record.ended = live.arrival;
  if (error.empty()) {
    record.first_token = live.first;
    record.last_token = live.last;
    record.ended = live.last;
    record.output_tokens = live.output_len();
    record.finished = true;
    record.scheduling_delay = live.first_scheduled.since_start - live.arrival;
  }
  recorder_.add_request(record);
  last_end_ = std::max(last_end_, record.ended);
  --load_;
  free_.push_back(&live);
}

}  // namespace sluice
