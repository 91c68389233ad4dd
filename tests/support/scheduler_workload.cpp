#include "tests/support/scheduler_workload.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "kv/block_hash.h"
#include "scheduler/back_loads.h"
#include "scheduler/block_pager.h"
#include "scheduler/kv_sizer.h"
#include "scheduler/plan_pass.h"
#include "scheduler/policy.h"
#include "scheduler/scheduler.h"
#include "scheduler/simple_policies.h"
#include "scheduler/step_time_correction.h"
#include "tests/support/fake_executor.h"
#include "tests/support/workload_setup.h"

namespace sluice {
namespace {

// The promises of a policy beyond those that all policies make.
struct Promises {
  bool mixes_phases = true;        // chunks and decodes in one step
  bool whole_prompts = false;      // a prompt is one row
  bool limits_decodes = false;     // by the token budget, as well
  bool never_preempts = false;     // except for shared blocks that leave a window
  bool first_come = true;          // else only within a client
  bool hands_out_turns = false;    // instead of serving in any of these orders
  bool closed_batches = false;     // only choices of its own requests join a decoding batch
  bool admits_before_all = false;  // while it admits, others may wait
};

Promises promises_of(std::string_view policy) {
  Promises p;
  p.mixes_phases = policy != "chunked-only" && policy != "prefill-first";
  p.limits_decodes = policy == "unified";
  p.never_preempts =
      policy == "hybrid" || policy == "hybrid:max-tokens" || policy == "request-level";
  p.whole_prompts = p.never_preempts || policy == "hybrid-only" || policy == "prefill-first";
  p.hands_out_turns = policy == "fair";
  p.first_come = policy != "vtc" && !p.hands_out_turns;
  p.closed_batches = policy == "request-level";
  p.admits_before_all = policy == "request-level" || policy == "prefill-first";
  return p;
}

// Guesses come from the oracle, so that long runs of right guesses happen.
class GuessingPolicy final : public Policy {
 public:
  GuessingPolicy(const FakeModel& model, std::int32_t max_model_len, std::uint64_t seed)
      : model_(model), max_model_len_(max_model_len), rng_(seed) {}

  std::string_view name() const override { return "guessing"; }
  void plan(PlanPass& pass) override {
    for (std::size_t i = 0; i < pass.running().size(); ++i) {
      const std::int32_t slot = pass.running()[i];
      if (pass.decode_ready(slot) && pass.idle(slot) && rng_.below(2) == 0) guess(pass, slot);
    }
    stall_free_.plan(pass);
  }

 private:
  void guess(PlanPass& pass, std::int32_t slot) {
    const Sequence& sequence = pass.sequence(slot);
    const ExpectedOutput expected =
        expected_output(model_, *sequence.request, sequence.choice, max_model_len_);
    std::vector<TokenId> guesses;
    const std::size_t end = std::min(expected.tokens.size(), sequence.tokens.size() + 4);
    for (std::size_t i = sequence.tokens.size(); i < end; ++i)
      guesses.push_back(expected.tokens[i]);
    for (TokenId& token : guesses) {
      if (rng_.below(5) == 0) token = static_cast<TokenId>((token + 1) % model_.vocab_size);
    }
    pass.decode_guessed(slot, guesses);
  }

  const FakeModel& model_;
  std::int32_t max_model_len_;
  SplitMix64 rng_;
  StallFreePolicy stall_free_;
};

std::unique_ptr<Policy> choose_policy(const WorkloadSetup& setup, std::string_view name,
                                      std::uint64_t seed) {
  if (name != kGuessing) return make_policy(name).value();
  return std::make_unique<GuessingPolicy>(setup.model, setup.scheduler.max_model_len, seed);
}

struct LiveRequest {
  Request request;
  int alive = 0;
};

struct LiveSequence {
  Sequence sequence;
  std::shared_ptr<LiveRequest> owner;  // shared by the choices of one request, as in the engine
  std::uint64_t arrival = 0;
  int in_flight = 0;  // rows submitted and not committed
  std::int32_t seen_tokens = 0;
  std::int32_t forced = 0;
  std::int32_t prefill_end = 0;  // tokens known when it was admitted last
  std::int32_t chunks_end = -1;  // of the rows since then; -1: there is none
  std::int32_t computed = 0;     // tokens of the prompt that rows have computed
};

struct InFlight {
  BatchPlan plan;
  TimePoint submitted;
};

struct StartedTransfer {
  std::int64_t turn = 0;
  PagedBlock block;  // of a save or load
};

class Workload {
 public:
  Workload(std::string_view policy, std::uint64_t seed, WorkloadKind kind)
      : rng_(seed),
        pin_rng_(seed + 1),
        level_rng_(seed + 2),
        promises_(promises_of(policy)),
        setup_(choose_setup(rng_, policy, seed, kind)),
        kv_(setup_.kv),
        scheduler_(setup_.scheduler, kv_, choose_policy(setup_, policy, rng_())),
        executor_(setup_.model, setup_.kv, setup_.max_in_flight),
        hasher_(Hash128{}, setup_.kv.block_size) {
    plans_.resize(static_cast<std::size_t>(setup_.max_in_flight));
    levels_.resize(static_cast<std::size_t>(setup_.kv.tier_pages), TierLevel::kSlow);
    executor_.hold_transfers();
    // By the seed alone, as the turn below.
    if (setup_.max_in_flight == 1 && seed % 4 != 0) executor_.force_tokens(1 + seed % 7);
    if (setup_.scheduler.time_budget) {
      step_time_.emplace(*setup_.scheduler.time_budget, setup_.scheduler.token_budget);
    }
    // The turn depends on the seed alone, so that it changes nothing else that is drawn.
    if (seed % 3 != 0) hold_turn_ = static_cast<std::int64_t>(seed % 50);
    pins_ = seed % 4 == 1 && setup_.kv.prefix_caching == PrefixCaching::kOn;
    for (auto& base : prefixes_) {
      for (int i = 0; i < 130; ++i) base.push_back(random_token());
    }
  }

  WorkloadReport run(std::int64_t steps) {
    while (report_.steps < steps) {
      if (live_.size() < 60 && turns_ >= quiet_until_ && chance(rng_, setup_.arrival_rate)) {
        arrive();
      }
      if (chance(rng_, setup_.cancel_rate)) cancel_one();
      if (chance(rng_, setup_.limit_rate)) change_limit();
      if (chance(rng_, setup_.refuse_rate)) refuse_growth(chance(rng_, 0.6));
      if (turns_ == hold_turn_) hold_prefix();
      if (pins_) change_pins();
      if (chance(rng_, setup_.pause_rate)) quiet_until_ = turns_ + pick(rng_, 5, 60);
      turn();
      if (++turns_ > 50 * steps + 10000) break;  // a setup that refuses all its requests
    }
    drain();
    return report_;
  }

 private:
  TokenId random_token() {
    return static_cast<TokenId>(rng_.below(static_cast<std::uint64_t>(setup_.model.vocab_size)));
  }

  std::shared_ptr<LiveRequest> make_request();
  void arrive();
  void cancel_one();
  void change_limit();
  void refuse_growth(bool refuse);
  void hold_prefix();
  void change_pins();
  void check_holds();
  void end_transfers();
  double load_rate(const PagedBlock& block) const;
  void note_level(const PagedBlock& block, bool loaded);
  void change_level();
  void tell_level(std::int32_t page, TierLevel level);
  void note_started(const BatchPlan& plan);
  void drop_page();
  void note_memory(const BatchPlan& plan);
  void check_waits(const BatchPlan& plan) const;
  void turn();
  void drain();
  void plan_step();
  void check_plan(const BatchPlan& plan);
  void check_rows(const BatchPlan& plan);
  void check_time(const BatchPlan& plan) const;
  void learn_time(const InFlight& flight);
  void check_micro_batch(const BatchPlan& plan) const;
  bool gave_way(const LiveSequence& victim, const BatchPlan& plan) const;
  bool should_come_first(const LiveSequence& live, const LiveSequence& other) const;
  void check_closed_batch(const BatchPlan& plan) const;
  std::size_t count_running() const;
  void check_admissions(const BatchPlan& plan);
  void check_progress(const BatchPlan& plan);
  void commit_step();
  void check_commit(const RowCommit& commit, const BatchPlan& plan);
  void retire(SequenceId id);
  void check_end(const LiveSequence& live) const;

  SplitMix64 rng_;
  SplitMix64 pin_rng_;    // a stream of its own: pins change nothing else that is drawn
  SplitMix64 level_rng_;  // likewise
  Promises promises_;
  WorkloadSetup setup_;
  KvManager kv_;
  Scheduler scheduler_;
  FakeExecutor executor_;
  BlockHasher hasher_;
  std::vector<TokenId> prefixes_[4];
  std::unordered_map<SequenceId, std::unique_ptr<LiveSequence>> live_;
  std::vector<SequenceId> ids_;  // of live_, for random picks in a fixed order
  std::vector<InFlight> plans_;  // a ring
  std::size_t oldest_ = 0;
  std::size_t num_plans_ = 0;
  StepResult result_;
  std::vector<RowCommit> commits_;
  // With a time budget: the correction that the scheduler should have learnt.
  std::optional<StepTimeCorrection> step_time_;
  TimePoint last_end_;
  std::uint64_t next_id_ = 1;
  std::int64_t turns_ = 0;
  std::int64_t quiet_until_ = 0;  // turn
  std::int64_t hold_turn_ = -1;   // the turn at which blocks begin to be held
  std::int32_t pinned_ = 0;       // blocks held after the last plan
  bool pins_ = false;             // prefixes are pinned and unpinned
  std::vector<std::vector<Hash128>> pinned_prefixes_;
  std::int32_t kv_limit_ = 0;
  bool refuses_growth_ = false;
  std::optional<TimePoint> refused_at_;  // the last growth
  std::vector<TransferResult> completed_;
  std::vector<PagedBlock> lost_pages_;
  std::vector<TierLevel> levels_;       // by page, as the scheduler knows them after its next plan
  std::vector<PageLevel> page_levels_;  // changes since the last plan
  std::set<std::int32_t> failed_adapters_;
  std::set<std::uint64_t> memory_only_;                      // tenants
  std::unordered_map<TransferId, StartedTransfer> started_;  // under way
  bool last_plan_empty_ = false;
  std::size_t running_before_ = 0;  // the plan
  SequenceId front_ = 0;            // the running sequence that comes before all others
  std::int64_t front_waits_ = 0;    // plans in a row without anything for it
  TimePoint now_;
  WorkloadReport report_;
};

std::shared_ptr<LiveRequest> Workload::make_request() {
  auto owner = std::make_shared<LiveRequest>();
  Request& request = owner->request;
  const std::int32_t length = pick(rng_, 1, setup_.max_prompt);
  const auto& base = prefixes_[rng_.below(4)];
  const std::int32_t shared = chance(rng_, 0.7) ? pick(rng_, 0, length) : 0;
  request.prompt.assign(base.begin(), base.begin() + shared);
  while (static_cast<std::int32_t>(request.prompt.size()) < length) {
    request.prompt.push_back(random_token());
  }
  SamplingParams& sampling = request.sampling;
  sampling.max_tokens = chance(rng_, 0.05) ? INT32_MAX : pick(rng_, 1, setup_.max_output);
  sampling.min_tokens = chance(rng_, 0.3) ? pick(rng_, 0, std::min(sampling.max_tokens, 20)) : 0;
  sampling.n = chance(rng_, 0.25) ? pick(rng_, 2, 5) : 1;
  sampling.seed = rng_.below(3);  // equal seeds and prompts happen
  sampling.ignore_eos = chance(rng_, 0.6);
  if (chance(rng_, 0.3)) sampling.stop_token_ids = {random_token(), random_token()};
  request.priority = chance(rng_, 0.15) ? pick(rng_, -1, 1) : 0;
  static constexpr const char* kClients[] = {"", "a", "b", "c"};
  request.client_key =
      chance(rng_, 0.1) ? std::to_string(next_id_) : kClients[rng_.below(std::size(kClients))];
  if (chance(rng_, setup_.adapter_rate)) {
    request.adapter = pick(rng_, 0, setup_.scheduler.adapters.num_adapters - 1);
  }
  if (chance(rng_, 0.9)) {
    KvIdentity identity;
    if (request.adapter >= 0) identity.adapter_digest = std::to_string(request.adapter);
    identity.block_size = setup_.kv.block_size;
    identity.tenant_salt = chance(rng_, 0.2) ? "other" : "";
    const Hash128 root = block_hash_root(identity);
    request.block_owner = {root, setup_.others_memory_only && !identity.tenant_salt.empty()};
    if (request.block_owner.memory_only) memory_only_.insert(root.high);
    hasher_.set_root(root);
    request.block_hashes = hasher_.hash_prompt(request.prompt);
    if (chance(rng_, 0.8)) request.block_hash_root = root;
  }
  return owner;
}

void Workload::arrive() {
  const std::shared_ptr<LiveRequest> owner = make_request();
  owner->request.id = next_id_;
  for (std::int32_t choice = 0; choice < owner->request.sampling.n; ++choice) {
    auto live = std::make_unique<LiveSequence>();
    live->owner = owner;
    live->arrival = next_id_;
    Sequence& sequence = live->sequence;
    sequence.id = next_id_++;
    sequence.request = &owner->request;
    sequence.choice = choice;
    if (sequence.id % 2 == 0) sequence.tokens = owner->request.prompt;  // else copied later
    sequence.prompt_len = static_cast<std::int32_t>(owner->request.prompt.size());
    live->seen_tokens = sequence.prompt_len;
    if (const Status status = scheduler_.add(sequence); !status) {
      CHECK(!status.error().message.empty());
      ++report_.refused;
      CHECK(choice == 0);  // all choices are alike
      return;
    }
    ++owner->alive;
    ids_.push_back(sequence.id);
    live_.emplace(sequence.id, std::move(live));
  }
}

void Workload::cancel_one() {
  if (ids_.empty()) return;
  const SequenceId id = ids_[rng_.below(ids_.size())];
  LiveSequence& live = *live_.at(id);
  const bool in_flight = live.in_flight > 0;
  scheduler_.cancel(live.sequence,
                    chance(rng_, 0.5) ? FinishReason::kCancelled : FinishReason::kStop);
  CHECK((live.sequence.state == SequenceState::kFinished) == !in_flight);
  ++report_.cancelled;
  if (!in_flight) {
    live.sequence.cancel_requested = true;  // for check_end: the output may be cut anywhere
    retire(id);
  }
  scheduler_.check_integrity();
}

// Half of the limits leave too little for some of the sequences.
void Workload::change_limit() {
  kv_limit_ = chance(rng_, 0.4) ? 0 : pick(rng_, 2, setup_.kv.max_blocks + 1);
}

// Holds the blocks of a shared prefix, at most a quarter of the memory.
void Workload::hold_prefix() {
  if (setup_.kv.prefix_caching == PrefixCaching::kOff) return;
  KvIdentity identity;
  identity.block_size = setup_.kv.block_size;
  hasher_.set_root(block_hash_root(identity));
  std::vector<Hash128> names = hasher_.hash_prompt(prefixes_[0]);
  while (!names.empty() && kv_.blocks_to_hold(names) > setup_.kv.max_blocks / 4) names.pop_back();
  kv_.hold(names);
  scheduler_.check_integrity();
}

// Pins or unpins a prefix now and then. Pins need at most a quarter of the memory.
void Workload::change_pins() {
  if (!pinned_prefixes_.empty() && chance(pin_rng_, 0.02)) {
    const std::size_t which = pin_rng_.below(pinned_prefixes_.size());
    kv_.unpin(pinned_prefixes_[which]);
    pinned_prefixes_.erase(pinned_prefixes_.begin() + static_cast<std::ptrdiff_t>(which));
    ++report_.unpins;
    scheduler_.check_integrity();
  }
  if (!chance(pin_rng_, 0.04)) return;
  KvIdentity identity;
  identity.block_size = setup_.kv.block_size;
  identity.tenant_salt = chance(pin_rng_, 0.2) ? "other" : "";
  hasher_.set_root(block_hash_root(identity));
  std::vector<Hash128> names = hasher_.hash_prompt(prefixes_[pin_rng_.below(4)]);
  names.resize(1 + pin_rng_.below(names.size()));
  std::int32_t all = kv_.count_blocks(names).all;
  for (const auto& prefix : pinned_prefixes_) all += kv_.count_blocks(prefix).all;
  if (all > setup_.kv.max_blocks / 4) return;
  kv_.pin(names);
  pinned_prefixes_.push_back(std::move(names));
  ++report_.pins;
  scheduler_.check_integrity();
}

// Held blocks stay held until all holds end, and only short memory ends them. A row that fails
// forgets its blocks, so it may drop some. A plan that lets pinned blocks go may use them again.
void Workload::check_holds() {
  const std::int32_t pinned = kv_.num_pinned_blocks();
  if (pins_) {
    report_.pinned_plans += pinned > 0 ? 1 : 0;
    report_.most_protected =
        std::max<std::int64_t>(report_.most_protected, kv_.tier().num_protected());
    return;
  }
  report_.most_pinned = std::max<std::int64_t>(report_.most_pinned, pinned);
  CHECK(pinned >= pinned_ || pinned == 0 || setup_.model.fail_one_in > 0);
  report_.ended_holds += pinned == 0 && pinned_ > 0 ? 1 : 0;
  pinned_ = pinned;
}

void Workload::refuse_growth(bool refuse) {
  refuses_growth_ = refuse;
  executor_.refuse_growth(refuse);
}

// Each transfer under way ends with some probability, in any order.
void Workload::end_transfers() {
  for (std::size_t i = executor_.transfers().size(); i > 0; --i) {
    const PlanTransfer transfer = executor_.transfers()[i - 1];
    const auto started = started_.find(transfer.id);
    CHECK(started != started_.end());
    const bool load = transfer.kind == TransferKind::kLoadBlock;
    if (!chance(rng_, load ? load_rate(started->second.block) : 0.3)) continue;
    const bool pages = transfer.kind != TransferKind::kLoadAdapter;
    const bool failed = chance(rng_, pages ? 0.1 : 0.45);
    executor_.end_transfer(i - 1, failed, transfer.id % 2 == 0);
    report_.failed_transfers += failed ? 1 : 0;
    if (failed && !pages) failed_adapters_.insert(transfer.resource);
    if (!failed && pages) note_level(started->second.block, load);
    report_.late_transfers += turns_ - started->second.turn >= 2 ? 1 : 0;
    started_.erase(started);
  }
}

double Workload::load_rate(const PagedBlock& block) const {
  if (!setup_.two_levels) return setup_.load_rate;
  return block.level == TierLevel::kFast ? 0.9 : setup_.load_rate / 4;
}

// A block that was saved or loaded goes to the fast level, if that has room.
void Workload::note_level(const PagedBlock& block, bool loaded) {
  if (!setup_.two_levels) return;
  report_.fast_loads += loaded && block.level == TierLevel::kFast ? 1 : 0;
  report_.slow_loads += loaded && block.level == TierLevel::kSlow ? 1 : 0;
  if (chance(level_rng_, loaded ? 0.3 : 0.7)) tell_level(block.page, TierLevel::kFast);
}

// The fast level makes room, or reads ahead. The page may be empty, or under way.
void Workload::change_level() {
  if (!setup_.two_levels || !chance(level_rng_, 0.3)) return;
  const auto page = static_cast<std::int32_t>(level_rng_.below(levels_.size()));
  tell_level(page, chance(level_rng_, 0.8) ? TierLevel::kSlow : TierLevel::kFast);
}

void Workload::tell_level(std::int32_t page, TierLevel level) {
  report_.level_changes += levels_[static_cast<std::size_t>(page)] == level ? 0 : 1;
  levels_[static_cast<std::size_t>(page)] = level;
  page_levels_.push_back({page, level});
}

// The tier makes room: any block that is not under way.
void Workload::drop_page() {
  const std::vector<PagedBlock> saved = executor_.saved_pages();
  if (saved.empty()) return;
  const PagedBlock& block =
      saved[static_cast<std::size_t>(pick(rng_, 0, static_cast<int>(saved.size()) - 1))];
  if (!kv_.tier().under_way(block.page)) executor_.drop_page(block);
}

void Workload::turn() {
  now_ = now_ + Duration(pick(rng_, 100'000, 2'000'000));
  // Long enough for a refused growth to be asked for again.
  if (setup_.refuse_rate > 0 && chance(rng_, 0.1)) now_ = now_ + std::chrono::seconds(1);
  end_transfers();
  if (setup_.kv.tier_pages > 0) {
    executor_.accept_saves(chance(rng_, 0.8));
    if (chance(rng_, setup_.drop_rate)) kv_.drop_cached();
    if (chance(rng_, 0.002)) drop_page();
    change_level();
  }
  if (num_plans_ < plans_.size()) plan_step();
  const bool full = num_plans_ == plans_.size();
  const bool stuck = scheduler_.has_work() && last_plan_empty_;
  if (num_plans_ > 0 && (full || stuck || chance(rng_, setup_.early_commit_rate))) commit_step();
}

void Workload::drain() {
  setup_.cancel_rate = 0;
  kv_limit_ = 0;
  refuse_growth(false);
  std::int64_t budget = 1000;
  for (const auto& [id, live] : live_) budget += 40 * std::int64_t{live->sequence.max_len} + 100;
  budget += 100 * std::int64_t{setup_.kv.max_blocks};
  while (scheduler_.has_work() || num_plans_ > 0 || kv_.has_wrong_pages() ||
         kv_.num_paging() + kv_.num_unsaved() > 0 || !executor_.transfers().empty()) {
    turn();
    ++turns_;
    CHECK(--budget > 0);  // every sequence finishes
  }
  CHECK(live_.empty());
  CHECK(kv_.tier().num_under_way() == 0 && executor_.transfers().empty());
  // The tier has exactly the blocks of the index.
  const std::vector<PagedBlock> saved = executor_.saved_pages();
  CHECK(static_cast<std::int32_t>(saved.size()) == kv_.tier().num_saved());
  for (const PagedBlock& page : saved) {
    CHECK(kv_.tier().find(page.name, page.group) == page.page);
  }
  const PagingStats& paging = scheduler_.paging_stats();
  report_.saved_blocks = paging.saved_blocks;
  report_.loaded_blocks = paging.loaded_blocks;
  report_.failed_loads = paging.failed_loads;
  report_.computed_instead = paging.computed_instead;
  report_.tier_tokens = paging.hit_tokens;
  report_.met = paging.met;
  CHECK(kv_.num_used_blocks() == kv_.num_pinned_blocks());
  kv_.release_holds();
  for (const auto& prefix : pinned_prefixes_) kv_.unpin(prefix);
  kv_.check_integrity();
  CHECK(kv_.tier().num_protected() == 0);
  CHECK(kv_.num_used_blocks() == 0 && kv_.num_available_blocks() == kv_.num_usable_blocks());
}

void Workload::plan_step() {
  InFlight& flight = plans_[(oldest_ + num_plans_) % plans_.size()];
  BatchPlan& plan = flight.plan;
  flight.submitted = now_;
  running_before_ = count_running();
  completed_.clear();
  CHECK(executor_.poll(completed_).has_value());
  lost_pages_.clear();
  executor_.take_lost_pages(lost_pages_);
  scheduler_.plan(now_,
                  {.completed = completed_,
                   .kv_backed_blocks = executor_.kv_backed_blocks(),
                   .kv_growth_failed = executor_.kv_growth_failed(),
                   .kv_limit_blocks = kv_limit_,
                   .lost_pages = lost_pages_,
                   .page_levels = page_levels_,
                   .tier_accepts_saves = executor_.tier_accepts_saves()},
                  plan);
  page_levels_.clear();
  scheduler_.check_integrity();
  check_holds();
  check_plan(plan);
  last_plan_empty_ = !plan.has_rows();
  if (!plan.has_rows()) {
    ++report_.empty_plans;
    check_waits(plan);
  }
  note_started(plan);
  report_.transfers += static_cast<std::int64_t>(plan.transfers.size());
  note_memory(plan);
  if (!plan.empty()) CHECK(executor_.submit(plan).has_value());
  for (const Sequence* ended : plan.ended) retire(ended->id);
  if (!plan.has_rows()) return;
  ++num_plans_;
  ++report_.steps;
  const bool piped = setup_.scheduler.micro_batches > 1;
  report_.piped_rows += piped ? static_cast<std::int64_t>(plan.rows.size()) : 0;
}

void Workload::note_started(const BatchPlan& plan) {
  for (const PlanTransfer& transfer : plan.transfers) {
    StartedTransfer& started = started_[transfer.id];
    started.turn = turns_;
    if (transfer.kind == TransferKind::kLoadAdapter) continue;
    started.block = plan.pages[static_cast<std::size_t>(transfer.resource)];
    if (transfer.kind == TransferKind::kLoadBlock) {
      CHECK(started.block.level == levels_[static_cast<std::size_t>(started.block.page)]);
    } else {
      CHECK(!memory_only_.contains(started.block.tenant.high));
    }
  }
}

void Workload::note_memory(const BatchPlan& plan) {
  report_.copies += static_cast<std::int64_t>(plan.copies.size());
  for (const BlockCopy& copy : plan.copies) {
    report_.moved_blocks += copy.source > kv_.num_usable_blocks() ? 1 : 0;
  }
  if (plan.kv_blocks == 0) return;
  CHECK(setup_.kv.chunk_blocks > 0 && plan.kv_blocks <= setup_.kv.max_blocks);
  if (plan.kv_blocks > executor_.kv_backed_blocks()) {
    CHECK(kv_limit_ == 0 || plan.kv_blocks <= kv_limit_);
    ++report_.growths;
    report_.refused_growths += refuses_growth_ ? 1 : 0;
    if (refuses_growth_) refused_at_ = now_;
    return;
  }
  CHECK(plan.kv_blocks < executor_.kv_backed_blocks());
  CHECK(kv_limit_ > 0 || setup_.scheduler.kv_idle_release.count() > 0);
  CHECK(kv_.num_blocks_above() == 0);
  ++report_.shrinks;
  report_.idle_releases += kv_limit_ == 0 ? 1 : 0;
}

// With no step to wait for, something must run or move, or all wait for transfers.
void Workload::check_waits(const BatchPlan& plan) const {
  if (num_plans_ > 0 || !plan.empty() || !plan.preempted.empty() || !plan.ended.empty()) return;
  if (kv_.num_paging() > 0) return;  // transfers hold blocks that a sequence lacks
  CHECK(scheduler_.num_running() == 0);
  CHECK(!scheduler_.has_work() || !executor_.transfers().empty());
  for (const auto& [id, live] : live_) CHECK(live->owner->request.adapter >= 0);
}

void Workload::check_plan(const BatchPlan& plan) {
  for (const SequenceId id : plan.preempted) {
    CHECK(live_.at(id)->in_flight == 0);  // no victim in flight
    ++report_.preemptions;
  }
  const auto& windows = setup_.kv.group_windows;
  const bool sliding = std::any_of(windows.begin(), windows.end(), [](auto w) { return w > 0; });
  const bool urgent = std::ranges::all_of(
      plan.preempted, [&](SequenceId id) { return gave_way(*live_.at(id), plan); });
  report_.displaced += urgent ? static_cast<std::int64_t>(plan.preempted.size()) : 0;
  CHECK(urgent || !promises_.never_preempts || sliding || kv_limit_ > 0);
  // Otherwise the victim would come back at once, or another sequence would take its blocks.
  CHECK(plan.preempted.empty() || plan.assignments.empty() || promises_.hands_out_turns || urgent);
  check_admissions(plan);
  check_closed_batch(plan);
  check_progress(plan);
  check_micro_batch(plan);
  for (const SlotAssignment& assignment : plan.assignments) {
    LiveSequence& live = *live_.at(assignment.sequence->id);
    live.prefill_end = static_cast<std::int32_t>(live.sequence.tokens.size());
    live.chunks_end = -1;
  }
  check_rows(plan);
  check_time(plan);
}

void Workload::check_rows(const BatchPlan& plan) {
  std::int32_t decodes = 0;
  std::int32_t chunks = 0;
  for (const PlanRow& row : plan.rows) {
    LiveSequence& live = *live_.at(row.sequence);
    CHECK(std::count(plan.preempted.begin(), plan.preempted.end(), row.sequence) == 0);
    CHECK(!live.sequence.cancel_requested && live.sequence.slot == row.slot);
    const bool decode = row.context_len >= live.prefill_end;
    (decode ? decodes : chunks) += row.query_len;
    // Chunks leave out only what loads brought.
    CHECK(decode || live.chunks_end < 0 || row.context_len - row.loaded_len == live.chunks_end);
    CHECK(row.loaded_len == 0 || (!decode && row.loaded_len % setup_.kv.block_size == 0));
    live.chunks_end = row.context_len + row.query_len;
    live.computed +=
        std::max(0, std::min(live.chunks_end, live.sequence.prompt_len) - row.context_len);
    report_.met_tokens += row.loaded_len;
    CHECK(decode || !promises_.whole_prompts ||
          row.context_len + row.query_len == live.prefill_end);
    // In a pipeline the token of a decode in flight is not known to the first stage.
    CHECK(!decode || setup_.scheduler.micro_batches == 1 || live.in_flight == 0);
    ++live.in_flight;
    CHECK(row.context_len + row.query_len < live.sequence.max_len);
    report_.guessed_rows += row.num_logits > 1 ? 1 : 0;
  }
  CHECK(promises_.mixes_phases || chunks == 0 || decodes == 0);
  CHECK((chunks == 0 && !promises_.limits_decodes) ||
        chunks + decodes <= setup_.scheduler.token_budget);
  CHECK(static_cast<std::int32_t>(plan.rows.size()) <= setup_.scheduler.max_num_seqs);
}

// A step with a chunk keeps the limit of every slack, judged by the step times known by then,
// unless the chunk is the smallest allowed. (time_budget_test computes the slack itself.)
void Workload::check_time(const BatchPlan& plan) const {
  if (!setup_.scheduler.time_budget) return;
  const TimeBudget& time = *setup_.scheduler.time_budget;
  StepFeatures step;
  StepFeatures streams;
  std::int32_t decodes = 0;
  std::int32_t chunks = 0;
  std::int32_t chunk_tokens = 0;
  for (const PlanRow& row : plan.rows) {
    const LiveSequence& live = *live_.at(row.sequence);
    // A sequence that returns and lacks one token decodes, as far as chunks are planned after it.
    const bool begins =
        std::any_of(plan.assignments.begin(), plan.assignments.end(),
                    [&](const SlotAssignment& assignment) { return assignment.slot == row.slot; });
    const bool returns = begins && chunks == 0 && live.sequence.output_len() > 0 &&
                         row.context_len + 1 == live.prefill_end;
    if (row.context_len >= live.prefill_end || returns) {
      step.add(row, time.window());
      streams.add(row, time.window());
      ++decodes;
    } else {
      step.add_chunk(row.context_len, row.query_len, row.num_logits > 0, time.window());
      chunk_tokens += row.query_len;
      ++chunks;
    }
  }
  if (decodes == 0 || chunks == 0) return;
  if (chunks == 1 && chunk_tokens <= time.min_chunk) return;
  CHECK(step_time_->known());
  const double limit = time.decode_steps > 0 ? step_time_->decode_limit_ns(streams)
                                             : time.limit_ns(time.longest_step);
  CHECK(step_time_->time_ns(step) * step_time_->margin() <= limit * (1 + 1e-9));
}

// A step takes from its submission, or the end of the one before it, to its own end.
void Workload::learn_time(const InFlight& flight) {
  if (!step_time_) return;
  const bool piped = setup_.scheduler.micro_batches > 1;
  const TimePoint start = piped ? flight.submitted : std::max(flight.submitted, last_end_);
  step_time_->observe(step_features(flight.plan), decode_features(flight.plan),
                      static_cast<double>((now_ - start).count()));
  last_end_ = now_;
}

std::size_t Workload::count_running() const {
  std::size_t count = 0;
  for (const auto& [id, live] : live_) {
    const Sequence& s = live->sequence;
    count += s.state == SequenceState::kRunning && !s.cancel_requested ? 1 : 0;
  }
  return count;
}

// Micro-batches are balanced: none takes more than its share.
void Workload::check_micro_batch(const BatchPlan& plan) const {
  const auto batches = static_cast<std::size_t>(setup_.scheduler.micro_batches);
  const auto share = [&](std::size_t all) { return (all + batches - 1) / batches; };
  const std::size_t ran_before = plan.rows.size() - plan.assignments.size();
  CHECK(ran_before <= share(running_before_));
  CHECK(plan.rows.size() <= share(static_cast<std::size_t>(setup_.scheduler.max_num_seqs)));
}

// Whether a sequence was preempted for one of higher priority that waits or is admitted now, and
// only such ones are admitted.
bool Workload::gave_way(const LiveSequence& victim, const BatchPlan& plan) const {
  const std::int32_t priority = victim.owner->request.priority;
  if (promises_.hands_out_turns || promises_.closed_batches) return false;
  for (const SlotAssignment& assignment : plan.assignments) {
    if (assignment.sequence->request->priority >= priority) return false;
  }
  if (!plan.assignments.empty()) return true;
  return std::ranges::any_of(live_, [&](const auto& entry) {
    return entry.second->sequence.state == SequenceState::kWaiting &&
           entry.second->owner->request.priority < priority;
  });
}

// First come, first served within a priority; `vtc` within priority and client.
bool Workload::should_come_first(const LiveSequence& live, const LiveSequence& other) const {
  const Request& a = live.owner->request;
  const Request& b = other.owner->request;
  if (promises_.hands_out_turns) return false;
  if (a.priority != b.priority) return a.priority < b.priority;
  return live.arrival < other.arrival && (promises_.first_come || a.client_key == b.client_key);
}

// No waiting sequence comes before one that was admitted now, except for choices that wait for the
// prompt of choice 0 and sequences that may wait for an adapter. The executor checks that admitted
// ones have theirs.
void Workload::check_admissions(const BatchPlan& plan) {
  for (const SlotAssignment& assignment : plan.assignments) {
    const LiveSequence& admitted = *live_.at(assignment.sequence->id);
    if (promises_.closed_batches && admitted.owner->request.sampling.n > 1) continue;
    for (const auto& [id, live] : live_) {
      if (live->sequence.state != SequenceState::kWaiting) continue;
      const Request& other = live->owner->request;
      if (live->sequence.paging == Paging::kLoading) continue;
      if (live->sequence.paging == Paging::kFollowing) continue;
      CHECK(!should_come_first(*live, admitted) || other.sampling.n > 1 || other.adapter >= 0);
    }
  }
}

void Workload::check_closed_batch(const BatchPlan& plan) const {
  if (!promises_.closed_batches) return;
  const bool joined =
      std::any_of(plan.assignments.begin(), plan.assignments.end(),
                  [&](const SlotAssignment& a) { return a.sequence->request->sampling.n == 1; });
  for (const auto& [id, live] : live_) {
    const Sequence& s = live->sequence;
    if (s.state != SequenceState::kRunning || s.cancel_requested) continue;
    CHECK(!joined || s.output_len() - live->forced < 2 || s.num_preemptions > 0);
  }
}

// Bounded waiting: the first sequence in service order gets a row again after as many plans as it
// takes to preempt all others, one for each step that may be in flight. A prompt waits while
// decodes use up the budget, because the promise is to the decodes. If prompts and decodes take
// turns, only every second plan counts; if prompts go first, plans with admissions do not count.
void Workload::check_progress(const BatchPlan& plan) {
  const LiveSequence* front = nullptr;
  for (const auto& [id, live] : live_) {
    if (live->sequence.state != SequenceState::kRunning || live->sequence.cancel_requested)
      continue;
    const auto order = std::pair(live->owner->request.priority, live->arrival);
    if (front == nullptr || order < std::pair(front->owner->request.priority, front->arrival)) {
      front = live.get();
    }
  }
  if (front == nullptr || !plan.has_rows()) return;  // it waits for a commit
  if (promises_.hands_out_turns) return;
  if (promises_.admits_before_all && !plan.assignments.empty()) return;
  const bool has_row = std::any_of(plan.rows.begin(), plan.rows.end(), [&](const PlanRow& row) {
    return row.sequence == front->sequence.id;
  });
  const bool budget_left =
      static_cast<std::int32_t>(plan.token_ids.size()) < setup_.scheduler.token_budget;
  const bool waits =
      front->sequence.id == front_ && !has_row && front->in_flight == 0 && budget_left;
  front_waits_ = waits ? front_waits_ + 1 : 0;
  front_ = front->sequence.id;
  const std::int32_t turns = promises_.mixes_phases ? 1 : 2;
  const std::int32_t others = (setup_.scheduler.max_num_seqs + 1) * (setup_.max_in_flight + 1);
  CHECK(front_waits_ <= turns * (others + BackLoads::kMostWaits));
}

void Workload::commit_step() {
  BatchPlan& plan = plans_[oldest_].plan;
  CHECK(executor_.collect(result_).has_value());
  scheduler_.commit(plan, result_, now_, commits_);
  learn_time(plans_[oldest_]);
  scheduler_.check_integrity();
  oldest_ = (oldest_ + 1) % plans_.size();
  --num_plans_;
  std::size_t rows = 0;
  for (const RowCommit& commit : commits_) {
    CHECK(commit.row == -1 || commit.row == static_cast<std::int32_t>(rows));
    rows += commit.row >= 0 ? 1 : 0;
    if (commit.sequence != nullptr) check_commit(commit, plan);
  }
  CHECK(rows == plan.rows.size());
}

void Workload::check_commit(const RowCommit& commit, const BatchPlan& plan) {
  LiveSequence& live = *live_.at(commit.sequence->id);
  if (commit.row >= 0) {
    CHECK(plan.rows[static_cast<std::size_t>(commit.row)].sequence == commit.sequence->id);
    --live.in_flight;
  }
  live.seen_tokens += commit.num_tokens;
  live.forced += commit.num_forced;
  CHECK(live.seen_tokens == live.sequence.length());
  // A cancelled sequence ends with an entry of its own, after the entries of its last rows.
  CHECK(commit.finished == (live.sequence.state == SequenceState::kFinished) ||
        (live.sequence.cancel_requested && commit.row >= 0));
  report_.output_tokens += commit.num_tokens;
  report_.forced_tokens += commit.num_forced;
  if (commit.finished) retire(commit.sequence->id);
}

void Workload::retire(SequenceId id) {
  check_end(*live_.at(id));
  ++report_.finished;
  report_.cached_tokens += live_.at(id)->sequence.cached_prompt_tokens;
  const FinishReason reason = live_.at(id)->sequence.finish_reason;
  report_.failed += reason == FinishReason::kError ? 1 : 0;
  report_.no_memory += reason == FinishReason::kNoMemory ? 1 : 0;
  report_.no_adapter += reason == FinishReason::kNoAdapter ? 1 : 0;
  live_.erase(id);
  ids_.erase(std::find(ids_.begin(), ids_.end(), id));
}

// The oracle: exactly the tokens and the finish reason that the model gives without a scheduler.
void Workload::check_end(const LiveSequence& live) const {
  const Sequence& sequence = live.sequence;
  const ExpectedOutput expected = expected_output(setup_.model, live.owner->request,
                                                  sequence.choice, setup_.scheduler.max_model_len);
  CHECK(sequence.state == SequenceState::kFinished);
  const FinishReason reason = sequence.finish_reason;
  const bool gave_up = reason == FinishReason::kNoMemory || reason == FinishReason::kNoAdapter;
  if (!sequence.cancel_requested && !gave_up) {
    CHECK(sequence.tokens == expected.tokens);
    CHECK(reason == expected.finish_reason);
    // Clients are told so, and `vtc` and `fair` charge so.
    CHECK(sequence.num_preemptions > 0 || sequence.output_len() == 0 ||
          sequence.cached_prompt_tokens + live.computed == sequence.prompt_len);
    return;
  }
  // It may need more than the limit leaves, or than there is while growth is refused.
  if (reason == FinishReason::kNoMemory) {
    std::int32_t most = setup_.kv.max_blocks;
    if (kv_limit_ > 0) most = std::min(most, kv_limit_);
    const bool refused = refused_at_ && now_ - *refused_at_ <= KvSizer::kGrowthRetry;
    if (refused) most = std::min(most, executor_.kv_backed_blocks());
    CHECK(kv_.blocks_needed(sequence.max_len - 1) > most - 1);
  }
  if (reason == FinishReason::kNoAdapter) {
    CHECK(failed_adapters_.contains(live.owner->request.adapter));
  }
  // A prompt that was not copied yet is the prompt.
  if (sequence.tokens.empty()) return;
  CHECK(sequence.tokens.size() <= expected.tokens.size());
  CHECK(std::equal(sequence.tokens.begin(), sequence.tokens.end(), expected.tokens.begin()));
}

}  // namespace

WorkloadReport run_scheduler_workload(std::string_view policy, std::uint64_t seed,
                                      std::int64_t steps, WorkloadKind kind) {
  return Workload(policy, seed, kind).run(steps);
}

}  // namespace sluice
