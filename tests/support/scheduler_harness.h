// SchedulerHarness: scheduler, KvManager and FakeExecutor wired together, for tests that run a few
// steps by hand. Owns the requests and sequences.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "kv/block_hash.h"
#include "scheduler/paging_costs.h"
#include "scheduler/policy.h"
#include "scheduler/scheduler.h"
#include "tests/support/fake_executor.h"

namespace sluice {

struct HarnessOptions {
  std::string policy = "stall-free";
  std::int32_t token_budget = 64;
  std::int32_t max_num_seqs = 8;
  std::int32_t max_model_len = 128;
  std::int32_t block_size = 4;
  std::int32_t num_blocks = 200;
  std::vector<std::int32_t> windows = {0};
  double watermark = 0;
  std::int32_t decode_headroom = 0;
  int max_in_flight = 1;
  PrefixCaching prefix_caching = PrefixCaching::kOn;
  std::uint64_t fail_one_in = 0;
  std::int32_t micro_batches = 1;
  std::optional<TimeBudget> time_budget = std::nullopt;
  std::int32_t max_blocks = 0;    // as in KvOptions
  std::int32_t chunk_blocks = 0;  // as in KvOptions
  std::int32_t least_blocks = 0;  // as in KvOptions
  AdapterOptions adapters = {};
  Duration kv_idle_release{0};
  std::int32_t tier_pages = 0;  // as in KvOptions
  std::int32_t turn_tokens = 32;
  std::int32_t meeting_tokens = 64;
  double meeting_factor = PagingCosts::kNear;
  StreamShape stream = {};
};

class SchedulerHarness {
 public:
  explicit SchedulerHarness(const HarnessOptions& options = {})
      : model{.vocab_size = 1000,
              .eos_ids = {0},
              .group_windows = options.windows,
              .fail_one_in = options.fail_one_in},
        scheduler_options{.token_budget = options.token_budget,
                          .max_num_seqs = options.max_num_seqs,
                          .max_model_len = options.max_model_len,
                          .eos_ids = model.eos_ids,
                          .micro_batches = options.micro_batches,
                          .time_budget = options.time_budget,
                          .decode_headroom = options.decode_headroom,
                          .turn_tokens = options.turn_tokens,
                          .meeting_tokens = options.meeting_tokens,
                          .meeting_factor = options.meeting_factor,
                          .adapters = options.adapters,
                          .stream = options.stream,
                          .kv_idle_release = options.kv_idle_release},
        kv_options{.block_size = options.block_size,
                   .group_windows = options.windows,
                   .num_blocks = options.num_blocks,
                   .max_blocks = options.max_blocks,
                   .least_blocks = options.least_blocks,
                   .max_num_seqs = options.max_num_seqs,
                   .max_model_len = options.max_model_len,
                   .max_query_len = std::min(
                       make_policy(options.policy).value()->token_budget(scheduler_options),
                       options.max_model_len),
                   .watermark = options.watermark,
                   .prefix_caching = options.prefix_caching,
                   .chunk_blocks = options.chunk_blocks,
                   .tier_pages = options.tier_pages},
        kv(kv_options),
        scheduler(scheduler_options, kv, make_policy(options.policy).value()),
        executor(model, kv_options, options.max_in_flight),
        plans(static_cast<std::size_t>(options.max_in_flight) + 1) {
    executor.stream(options.stream);
  }

  // A request of `length` prompt tokens. They differ from those of every request with another
  // `first`. It runs to max_tokens unless it is cancelled.
  Request& request(std::int32_t length, std::int32_t max_tokens, TokenId first = -1) {
    requests.push_back(std::make_unique<Request>());
    Request& r = *requests.back();
    const auto start = first >= 0 ? first : static_cast<TokenId>(100 * requests.size());
    for (std::int32_t i = 0; i < length; ++i) r.prompt.push_back((start + i) % 1000);
    r.sampling.max_tokens = max_tokens;
    r.sampling.ignore_eos = true;
    set_adapter(r, -1);
    return r;
  }
  // -1: none.
  void set_adapter(Request& r, std::int32_t adapter) const {
    r.adapter = adapter;
    KvIdentity identity;
    identity.block_size = kv.block_size();
    if (adapter >= 0) identity.adapter_digest = std::to_string(adapter);
    r.block_hash_root = block_hash_root(identity);
    r.block_hashes = BlockHasher(*r.block_hash_root, kv.block_size()).hash_prompt(r.prompt);
  }

  // Makes the next choice of a request and does not add it yet.
  Sequence& sequence(const Request& r) {
    std::int32_t choice = 0;
    for (const auto& other : sequences) choice += other->request == &r ? 1 : 0;
    sequences.push_back(std::make_unique<Sequence>());
    Sequence& s = *sequences.back();
    s.id = sequences.size();
    s.request = &r;
    s.choice = choice;
    s.tokens = r.prompt;
    s.prompt_len = static_cast<std::int32_t>(r.prompt.size());
    return s;
  }

  Sequence& add(std::int32_t length, std::int32_t max_tokens, TokenId first = -1) {
    Sequence& s = sequence(request(length, max_tokens, first));
    CHECK(scheduler.add(s).has_value());
    return s;
  }

  Sequence& add_with_adapter(std::int32_t length, std::int32_t max_tokens, std::int32_t adapter) {
    Request& r = request(length, max_tokens);
    set_adapter(r, adapter);
    Sequence& s = sequence(r);
    CHECK(scheduler.add(s).has_value());
    return s;
  }

  // Plans the next step and, unless it is empty, starts it.
  const BatchPlan& plan() {
    BatchPlan& p = plans[planned % plans.size()];
    completed.clear();
    CHECK(executor.poll(completed).has_value());
    scheduler.plan(now,
                   {.completed = completed,
                    .kv_backed_blocks = executor.kv_backed_blocks(),
                    .kv_growth_failed = executor.kv_growth_failed(),
                    .kv_limit_blocks = kv_limit,
                    .page_levels = page_levels,
                    .tier_accepts_saves = executor.tier_accepts_saves()},
                   p);
    if (const auto ended = scheduler.take_ended_stream()) executor.end_stream(*ended);
    scheduler.check_integrity();
    if (p.empty()) return p;
    CHECK(executor.submit(p).has_value());
    planned += p.has_rows() ? 1 : 0;
    return p;
  }

  // Commits the oldest step in flight.
  const std::vector<RowCommit>& commit() {
    CHECK(executor.collect(result).has_value());
    scheduler.commit(plans[committed % plans.size()], result, now, commits);
    ++committed;
    scheduler.check_integrity();
    return commits;
  }

  // One whole step; the plan's rows as text: "1:4@0 2:1@7" is sequence:tokens@context.
  std::string step() {
    const std::string text = describe(plan());
    if (committed < planned) commit();
    return text;
  }

  void run_to_end() {
    while (scheduler.has_work()) step();
  }

  // Lets the blocks of a stream that has ended be kept. REQUIRES: as save_all().
  void keep_all() {
    while (scheduler.keeps_stream() || kv.num_paging() + kv.num_unsaved() > 0) {
      CHECK(!plan().has_rows());
    }
  }

  // Lets the saves of unused blocks end. REQUIRES: transfers are not held, nothing is in flight.
  void save_all() {
    while (kv.num_paging() + kv.num_unsaved() > 0) CHECK(!plan().has_rows());
  }

  static std::string describe(const BatchPlan& plan) {
    std::string text;
    for (const PlanRow& row : plan.rows) {
      if (!text.empty()) text += ' ';
      text += std::to_string(row.sequence) + ':' + std::to_string(row.query_len) + '@' +
              std::to_string(row.context_len);
    }
    return text;
  }

  ExpectedOutput expected(const Sequence& s) const {
    return expected_output(model, *s.request, s.choice, scheduler_options.max_model_len);
  }

  FakeModel model;
  SchedulerOptions scheduler_options;
  KvOptions kv_options;
  KvManager kv;
  Scheduler scheduler;
  FakeExecutor executor;
  std::vector<BatchPlan> plans;  // a ring: those in flight and the one being planned
  std::size_t planned = 0;
  std::size_t committed = 0;
  StepResult result;
  std::vector<RowCommit> commits;
  std::vector<TransferResult> completed;
  std::int32_t kv_limit = 0;
  std::vector<PageLevel> page_levels;  // told at every plan
  TimePoint now;
  std::vector<std::unique_ptr<Request>> requests;
  std::vector<std::unique_ptr<Sequence>> sequences;
};

}  // namespace sluice
