#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kv/block_hash.h"
#include "request/sampling_params.h"
#include "scheduler/block_pager.h"

namespace sluice {
namespace {

// The longest wait for a transfer in a step that has nothing to compute, so that the loop does not
// spin.
constexpr Duration kTransferWait = std::chrono::milliseconds(2);
// A call returns to its caller after this many plans without rows.
constexpr int kMaxPlansWithoutRows = 8;
// An engine without work looks so often whether its tier takes blocks again.
constexpr Duration kTierLook = std::chrono::seconds(1);

ChoiceOutput output_of(const Sequence& sequence) {
  ChoiceOutput output;
  output.request = sequence.request->id;
  output.choice = sequence.choice;
  output.finish_reason = sequence.finish_reason;
  output.cached_prompt_tokens = sequence.cached_prompt_tokens;
  output.first_scheduled = sequence.first_scheduled;
  return output;
}

}  // namespace

Engine::Engine(const EngineLimits& limits, std::unique_ptr<Executor> executor,
               std::unique_ptr<KvManager> kv, std::unique_ptr<Scheduler> scheduler,
               const Clock& clock, const DeviceMeter* meter, KvContents* contents)
    : limits_(limits),
      clock_(clock),
      executor_(std::move(executor)),
      meter_(meter),
      contents_(contents),
      kv_(std::move(kv)),
      scheduler_(std::move(scheduler)),
      pins_(*kv_, contents == nullptr ? 1 : static_cast<std::int64_t>(contents->block_bytes())) {
  CHECK(executor_->max_in_flight() >= 1 && executor_->max_in_flight() <= kMaxInFlight);
}

Engine::~Engine() = default;

Result<std::span<const ChoiceOutput>> Engine::step() {
  const auto computed = compute();
  if (!computed) return computed.error();
  return commit();
}

Result<bool> Engine::compute() {
  CHECK(!collected_);
  if (failure_) return *failure_;
  const TimePoint now = clock_.now();
  pins_.expire(now);
  if (auto status = executor_->check(now); !status) return fail(status.error());
  if (auto status = fill_pipeline(now); !status) return fail(status.error());
  if (in_flight_ == 0) return false;
  if (auto status = executor_->collect(result_); !status) return fail(status.error());
  collected_ = true;
  return true;
}

std::span<const ChoiceOutput> Engine::commit() {
  outputs_.clear();
  commits_.clear();
  retired_.clear();
  if (collected_) commit_oldest();
  report();
  return outputs_;
}

// With two steps in flight, the second is planned before the first one's tokens are known. After a
// plan without rows the next plan is made at once, because it may need the result (such as more KV
// memory).
Status Engine::fill_pipeline(TimePoint now) {
  bool moved = false;  // something has changed without a step
  int plans_without_rows = 0;
  while (in_flight_ < executor_->max_in_flight() && plans_without_rows < kMaxPlansWithoutRows) {
    BatchPlan& plan = plans_[(first_plan_ + in_flight_) % kMaxInFlight];
    RETURN_IF_ERROR(plan_next(now, plan));
    if (plan.empty()) {
      moved = moved || !plan.preempted.empty();
      break;
    }
    RETURN_IF_ERROR(executor_->submit(plan));
    transfers_ += static_cast<std::int64_t>(plan.transfers.size());
    count_transfers(plan);
    if (!plan.has_rows()) {
      moved = true;
      ++plans_without_rows;
      continue;
    }
    ++in_flight_;
    ++stats_.steps;
    stats_.computed_tokens += static_cast<std::int64_t>(plan.token_ids.size());
  }
  if (in_flight_ > 0 || moved || !ended_.empty()) return {};
  if (transfers_ > 0) return executor_->wait_for_transfer(kTransferWait);
  if (!scheduler_->has_work()) return {};
  return internal_error("the scheduler planned nothing although sequences wait");
}

ResourceView Engine::resources() const {
  ResourceView resources;
  resources.completed = completed_;
  resources.lost_pages = lost_pages_;
  resources.page_levels = page_levels_;
  resources.kv_backed_blocks = executor_->kv_backed_blocks();
  resources.kv_growth_failed = executor_->kv_growth_failed();
  resources.kv_limit_blocks = kv_limit_;
  resources.tier_accepts_saves = executor_->tier_accepts_saves();
  return resources;
}

void Engine::set_kv_limit(std::int32_t blocks) {
  kv_limit_ = blocks;
  // For requests that come before the next plan.
  ResourceView view = resources();
  view.completed = {};
  view.lost_pages = {};
  view.page_levels = {};
  scheduler_->take_memory(clock_.now(), view);
}

// Grows KV memory, if it can, until `blocks` are free for a use without a sequence.
Status Engine::grow_kv(std::int32_t blocks) {
  const std::int32_t missing = blocks - kv_->num_fresh_blocks();
  const std::int32_t chunk = kv_->options().chunk_blocks;
  const std::int32_t backed = executor_->kv_backed_blocks();
  if (missing <= 0 || chunk == 0 || backed == 0) return {};
  BatchPlan plan;
  const std::int64_t wanted = (std::int64_t{backed} + missing + chunk - 1) / chunk * chunk;
  plan.kv_blocks =
      static_cast<std::int32_t>(std::min<std::int64_t>(wanted, kv_->options().max_blocks));
  if (plan.kv_blocks <= backed) return {};
  RETURN_IF_ERROR(executor_->submit(plan));
  completed_.clear();
  lost_pages_.clear();
  page_levels_.clear();
  scheduler_->take_memory(clock_.now(), resources());
  return {};
}

std::size_t Engine::kv_block_bytes() const {
  CHECK(contents_ != nullptr);
  return contents_->block_bytes();
}

Status Engine::read_block(BlockId id, std::span<std::byte> out) {
  CHECK(contents_ != nullptr && in_flight_ == 0);
  return contents_->read_block(id, out);
}

Status Engine::restore_blocks(std::span<const Hash128> names, StoredBlock stored) {
  CHECK(contents_ != nullptr && in_flight_ == 0 && transfers_ == 0);
  std::vector<BlockPlace> places = kv_->needed_blocks(names);
  std::erase_if(places, [&](const BlockPlace& place) {
    const Hash128 name = names[static_cast<std::size_t>(place.index)];
    return place.id != kNullBlock || !kv_->is_wanted(name, place.group) || stored(place).empty();
  });
  RETURN_IF_ERROR(grow_kv(static_cast<std::int32_t>(places.size())));
  for (const BlockPlace& place : places) {
    const BlockId id = kv_->adopt(names[static_cast<std::size_t>(place.index)], place.group);
    if (id == kNullBlock) break;
    RETURN_IF_ERROR(contents_->write_block(id, stored(place)));
  }
  return {};
}

Status Engine::plan_next(TimePoint now, BatchPlan& plan) {
  completed_.clear();
  if (transfers_ > 0) RETURN_IF_ERROR(executor_->poll(completed_));
  lost_pages_.clear();
  page_levels_.clear();
  executor_->take_lost_pages(lost_pages_);
  executor_->take_page_levels(page_levels_);
  stats_.failed_transfers += std::ranges::count(completed_, true, &TransferResult::failed);
  scheduler_->plan(now, resources(), plan);
  if (const auto ended = scheduler_->take_ended_stream()) executor_->end_stream(*ended);
  const PagingStats& paging = scheduler_->paging_stats();
  stats_.saved_blocks = paging.saved_blocks;
  stats_.loaded_blocks = paging.loaded_blocks;
  stats_.tier_hit_tokens = paging.hit_tokens;
  stats_.tier_saved_seconds = 1e-9 * paging.saved_ns;
  transfers_ -= static_cast<std::int64_t>(completed_.size());
  CHECK(transfers_ >= 0);
  stats_.preemptions += static_cast<std::int64_t>(plan.preempted.size());
  ended_.insert(ended_.end(), plan.ended.begin(), plan.ended.end());
  return {};
}

void Engine::commit_oldest() {
  if (contents_ != nullptr) stats_.streamed = contents_->streamed_bytes();
  if (meter_ != nullptr) {
    stats_.device = meter_->device_time();
    stats_.computed = meter_->computed_work();
  }
  scheduler_->commit(plans_[first_plan_], result_, clock_.now(), commits_);
  count_tokens(plans_[first_plan_]);
  first_plan_ = (first_plan_ + 1) % kMaxInFlight;
  --in_flight_;
  collected_ = false;
}

void Engine::count_transfers(const BatchPlan& plan) {
  stats_.adapter_loads +=
      std::ranges::count(plan.transfers, TransferKind::kLoadAdapter, &PlanTransfer::kind);
}

void Engine::count_tokens(const BatchPlan& plan) {
  for (const PlanRow& row : plan.rows) {
    const bool decode = row.query_len == 1 && row.num_logits > 0 && row.output_index > 0;
    (decode ? stats_.decode_tokens : stats_.prefill_tokens) += row.query_len;
  }
}

void Engine::report() {
  for (const Sequence* sequence : ended_) {
    outputs_.push_back(output_of(*sequence));
    retire(*sequence);
  }
  ended_.clear();
  for (const RowCommit& commit : commits_) {
    if (commit.sequence == nullptr) continue;
    stats_.forced_tokens += commit.num_forced;
    if (commit.num_tokens > 0 || commit.finished || has_scored(commit)) report_row(commit);
  }
}

bool Engine::has_scored(const RowCommit& commit) const {
  return !result_.prompt_logprobs.empty() && commit.row >= 0 &&
         result_.rows[static_cast<std::size_t>(commit.row)].num_prompt_logprobs > 0;
}

void Engine::report_row(const RowCommit& commit) {
  const Sequence& sequence = *commit.sequence;
  ChoiceOutput output = output_of(sequence);
  if (has_scored(commit)) {
    const RowResult& row = result_.rows[static_cast<std::size_t>(commit.row)];
    output.prompt_logprobs = std::span(result_.prompt_logprobs)
                                 .subspan(static_cast<std::size_t>(row.first_prompt_logprob),
                                          static_cast<std::size_t>(row.num_prompt_logprobs));
  }
  if (commit.num_tokens > 0) {
    const auto count = static_cast<std::size_t>(commit.num_tokens);
    output.tokens = std::span(sequence.tokens).last(count);
    const RowResult& row = result_.rows[static_cast<std::size_t>(commit.row)];
    // The row may have more tokens than were committed, when one of them ended the sequence.
    const auto per_token = static_cast<std::size_t>(row.num_logprobs / row.num_tokens);
    output.logprobs = std::span(result_.logprobs)
                          .subspan(static_cast<std::size_t>(row.first_logprob), per_token * count);
    output.embedding = std::span(result_.embeddings)
                           .subspan(static_cast<std::size_t>(row.first_embedding),
                                    static_cast<std::size_t>(row.num_embedding));
  }
  outputs_.push_back(output);
  if (commit.finished) retire(sequence);
}

// Removes a request whose last choice has ended from the map, but keeps it until the next step.
void Engine::retire(const Sequence& sequence) {
  if (sequence.streamed_blocks > 0 && !scheduler_->keeps_stream(sequence.id)) {
    executor_->end_stream(sequence.id);
  }
  const auto found = active_.find(sequence.request->id);
  CHECK(found != active_.end());
  if (--found->second->unfinished > 0) return;
  if (sequence.request->pin) {
    const FinishReason reason = sequence.finish_reason;
    const bool computed = reason != FinishReason::kCancelled && !is_failure(reason);
    pins_.end(sequence.request->id, computed, clock_.now());
  }
  retired_.push_back(std::move(found->second));
  active_.erase(found);
}

Status Engine::check(const Request& request) const {
  if (active_.contains(request.id)) {
    return invalid_argument(fmt::format("request id {} is in use", request.id));
  }
  if (request.prompt.empty()) return invalid_argument("prompt must have at least one token");
  for (const TokenId token : request.prompt) {
    if (token >= 0 && token < limits_.vocab_size) continue;
    return invalid_argument(fmt::format("prompt names token {}, the vocabulary has 0 to {}", token,
                                        limits_.vocab_size - 1));
  }
  if (request.prompt.size() >= static_cast<std::size_t>(limits_.max_model_len)) {
    return invalid_argument(fmt::format(
        "prompt has {} tokens, the context of {} must hold it and at least one token of output",
        request.prompt.size(), limits_.max_model_len));
  }
  if (request.adapter < -1 || request.adapter >= limits_.num_adapters) {
    return Error{ErrorCode::kNotFound, fmt::format("there is no adapter {}", request.adapter)};
  }
  CHECK(request.sampling.prompt_logprobs < 0 || request.block_hashes.empty());
  CHECK(request.pooling == Pooling::kNone || request.sampling.n == 1);
  CHECK(request.pooling != Pooling::kMean || request.block_hashes.empty());
  CHECK(!request.pin || request.sampling.n == 1);
  if (!request.resumed.empty()) {
    CHECK(request.sampling.n == 1 && request.sampling.logprobs < 0 && request.block_hash_root);
    RETURN_IF_ERROR(check_resumed(request));
  }
  return validate(request.sampling, limits_.vocab_size);
}

Status Engine::check_resumed(const Request& request) const {
  const std::size_t length = request.prompt.size() + request.resumed.size();
  const bool ended = request.resumed.size() >=
                         static_cast<std::size_t>(std::max(0, request.sampling.max_tokens)) ||
                     length >= static_cast<std::size_t>(limits_.max_model_len);
  const auto in_vocabulary = [this](TokenId token) {
    return token >= 0 && token < limits_.vocab_size;
  };
  if (!ended && std::ranges::all_of(request.resumed, in_vocabulary)) return {};
  return invalid_argument("the outputs that the request goes on from are not its own");
}

// The sequence is as one that was displaced behind these outputs.
void Engine::resume(Sequence& sequence) const {
  const Request& request = *sequence.request;
  sequence.tokens = request.prompt;
  sequence.tokens.insert(sequence.tokens.end(), request.resumed.begin(), request.resumed.end());
  sequence.block_hashes = request.block_hashes;
  BlockHasher hasher(*request.block_hash_root, kv_->block_size());
  hasher.extend(sequence.tokens, sequence.block_hashes);
}

Status Engine::add_request(Request request) {
  if (failure_) return *failure_;
  RETURN_IF_ERROR(check(request));
  auto active = std::make_unique<ActiveRequest>();
  active->request = std::move(request);
  const Request& stored = active->request;
  if (stored.pin) {
    RETURN_IF_ERROR(pins_.begin(stored));
  } else {
    pins_.note_request(stored);
  }
  active->choices.resize(static_cast<std::size_t>(stored.sampling.n));
  for (std::int32_t choice = 0; choice < stored.sampling.n; ++choice) {
    Sequence& sequence = active->choices[static_cast<std::size_t>(choice)];
    sequence.id = next_sequence_++;
    sequence.request = &stored;
    sequence.choice = choice;
    sequence.prompt_len = static_cast<std::int32_t>(stored.prompt.size());
    if (!stored.resumed.empty()) resume(sequence);
    if (auto status = scheduler_->add(sequence); !status) {
      for (std::int32_t i = 0; i < choice; ++i) {
        scheduler_->cancel(active->choices[static_cast<std::size_t>(i)]);
      }
      if (stored.pin) pins_.end(stored.id, false, clock_.now());
      return status;
    }
  }
  active->unfinished = stored.sampling.n;
  const RequestId id = stored.id;
  active_.emplace(id, std::move(active));
  return {};
}

void Engine::cancel(RequestId id) {
  const auto found = active_.find(id);
  if (found != active_.end()) cancel_choices(*found->second);
}

void Engine::cancel_all() {
  for (const auto& [id, active] : active_) cancel_choices(*active);
}

void Engine::cancel_choices(ActiveRequest& active) {
  for (Sequence& sequence : active.choices) end_sequence(sequence, FinishReason::kCancelled);
}

void Engine::end_choice(RequestId id, std::int32_t choice, FinishReason reason) {
  const auto found = active_.find(id);
  if (found == active_.end()) return;
  CHECK(choice >= 0 && static_cast<std::size_t>(choice) < found->second->choices.size());
  end_sequence(found->second->choices[static_cast<std::size_t>(choice)], reason);
}

void Engine::end_sequence(Sequence& sequence, FinishReason reason) {
  if (sequence.state == SequenceState::kFinished) return;
  scheduler_->cancel(sequence, reason);
  if (sequence.state == SequenceState::kFinished) ended_.push_back(&sequence);
}

bool Engine::has_work() const {
  return !failure_ &&
         (in_flight_ > 0 || transfers_ > 0 || !ended_.empty() || scheduler_->has_work() ||
          scheduler_->keeps_stream() ||
          (kv_limit_ > 0 && kv_->options().chunk_blocks > 0 &&
           executor_->kv_backed_blocks() > kv_limit_) ||
          kv_->has_wrong_pages() || (kv_->num_unsaved() > 0 && executor_->tier_accepts_saves()));
}

Status Engine::check_files() {
  if (failure_) return *failure_;
  auto status = executor_->check_now(clock_.now());
  if (!status) static_cast<void>(fail(status.error()));
  return status;
}

std::optional<TimePoint> Engine::wake_at() const {
  if (failure_) return std::nullopt;
  std::optional<TimePoint> earliest;
  for (const auto time : {scheduler_->wake_at(), executor_->next_check(), pins_.next_expiry()}) {
    if (time && (!earliest || *time < *earliest)) earliest = time;
  }
  if (kv_->tier().num_pages() > 0 && !executor_->tier_accepts_saves()) {
    const TimePoint look = clock_.now() + kTierLook;
    earliest = earliest ? std::min(*earliest, look) : look;
  }
  return earliest;
}

std::int32_t Engine::computed_tokens(RequestId id) const {
  const auto found = active_.find(id);
  return found == active_.end() ? 0 : found->second->choices.front().computed;
}

void Engine::append_progress(std::vector<RequestProgress>& out) const {
  for (const auto& [id, active] : active_) {
    RequestProgress progress;
    progress.request = id;
    progress.prompt_tokens = static_cast<std::int32_t>(active->request.prompt.size());
    progress.computed_tokens = active->choices.front().computed;
    for (const Sequence& sequence : active->choices) {
      progress.output_tokens += sequence.output_len();
      progress.running += sequence.state == SequenceState::kRunning ? 1 : 0;
      progress.waiting += sequence.state == SequenceState::kWaiting ? 1 : 0;
    }
    out.push_back(progress);
  }
}

Error Engine::fail(const Error& cause) {
  failure_ = unavailable(fmt::format("the engine has failed: {}", cause.message));
  outputs_.clear();
  ended_.clear();
  active_.clear();
  return *failure_;
}

void Engine::check_integrity() const {
  scheduler_->check_integrity();
  kv_->check_integrity();
  pins_.check_integrity();
}

}  // namespace sluice
