#include "scheduler/policy_vtc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "base/rng.h"
#include "scheduler/plan_pass.h"
#include "tests/support/scheduler_harness.h"

namespace sluice {
namespace {

HarnessOptions options(std::int32_t max_num_seqs) {
  return {.policy = "vtc",
          .token_budget = 32,
          .max_num_seqs = max_num_seqs,
          .max_model_len = 128,
          .num_blocks = 400,
          .prefix_caching = PrefixCaching::kOff};
}

Sequence& add(SchedulerHarness& h, const std::string& client, std::int32_t prompt,
              std::int32_t outputs, std::int32_t priority = 0) {
  Request& r = h.request(prompt, outputs);
  r.client_key = client;
  r.priority = priority;
  Sequence& s = h.sequence(r);
  CHECK(h.scheduler.add(s).has_value());
  return s;
}

TEST(PolicyVtc, TheClientServedLeastComesNext) {
  SchedulerHarness h(options(1));
  add(h, "many", 4, 2);  // pays 4 for its prompt and 2 for its decode
  add(h, "many", 4, 2);
  add(h, "many", 4, 2);
  add(h, "few", 3, 2);
  EXPECT_EQ(h.step(), "1:4@0");
  EXPECT_EQ(h.step(), "1:1@4");
  EXPECT_EQ(h.step(), "4:3@0");  // 0 < 6
  EXPECT_EQ(h.step(), "4:1@3");
  add(h, "few", 3, 1);  // its queue was empty: lifted from 5 to 6, and it came later
  EXPECT_EQ(h.step(), "2:4@0");
  EXPECT_EQ(h.step(), "2:1@4");
  EXPECT_EQ(h.step(), "5:3@0");  // 6 < 12
  EXPECT_EQ(h.step(), "3:4@0");
}

TEST(PolicyVtc, PriorityComesBeforeFairness) {
  SchedulerHarness h(options(1));
  add(h, "a", 20, 1);
  EXPECT_EQ(h.step(), "1:20@0");
  add(h, "b", 4, 1);
  add(h, "a", 4, 1, -1);
  EXPECT_EQ(h.step(), "3:4@0");
  EXPECT_EQ(h.step(), "2:4@0");
}

TEST(PolicyVtc, NoClientOvertakesTheNextOne) {
  HarnessOptions o = options(4);
  o.num_blocks = 12;  // 11 usable: 44 tokens
  SchedulerHarness h(o);
  add(h, "a", 20, 10);
  h.step();
  add(h, "b", 30, 5);  // its turn, and it does not fit
  add(h, "a", 4, 2);   // would
  EXPECT_EQ(h.step(), "1:1@20");
}

TEST(PolicyVtc, ChoicesPayForTheirPromptOnce) {
  HarnessOptions o = options(4);
  o.token_budget = 64;
  SchedulerHarness h(o);
  Request& r = h.request(20, 2);
  r.client_key = "choices";
  r.sampling.n = 3;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(h.scheduler.add(h.sequence(r)));
  add(h, "other", 40, 1);
  EXPECT_EQ(h.step(), "1:20@0 4:40@0");
  EXPECT_EQ(h.step(), "1:1@20 2:1@19 3:1@19");
  EXPECT_EQ(h.step(), "2:1@20 3:1@20");
  ASSERT_FALSE(h.scheduler.has_work());
  // "choices" has paid 20 + 1 + 1 for prompts and 3 x 2 for decodes, "other" 40. A new client gets
  // the counter of "choices", which left the queue last, and so runs twice before "other".
  add(h, "new", 5, 1);
  add(h, "other", 5, 1);
  add(h, "new", 5, 1);
  EXPECT_EQ(h.step(), "5:5@0 7:5@0 6:5@0");
}

// The rule as it is written, one choice after the other: in the best priority the client with the
// least counter, and its sequence that came first. Choices wait for their leader.
std::vector<SequenceId> admitted_by_the_rule(std::vector<const Sequence*> waiting) {
  std::map<std::string, std::int64_t> served;
  std::vector<const Request*> led;
  std::vector<SequenceId> order;
  while (true) {
    const auto place = [&](const Sequence* s) {
      return std::tuple(s->request->priority, served[s->request->client_key], s->ticket);
    };
    const Sequence* next = nullptr;
    for (const Sequence* s : waiting) {
      if (std::find(led.begin(), led.end(), s->request) != led.end()) continue;
      if (next == nullptr || place(s) < place(next)) next = s;
    }
    if (next == nullptr) return order;
    order.push_back(next->id);
    served[next->request->client_key] += next->prompt_len;
    if (next->request->sampling.n > 1) led.push_back(next->request);
    std::erase(waiting, next);
  }
}

TEST(PolicyVtc, AWholePlanFollowsTheRule) {
  SplitMix64 rng(17);
  for (int round = 0; round < 20; ++round) {
    HarnessOptions o = options(64);
    o.token_budget = 4096;
    o.num_blocks = 2000;
    SchedulerHarness h(o);
    std::vector<const Sequence*> waiting;
    while (waiting.size() < 50) {
      Request& r = h.request(static_cast<std::int32_t>(2 + rng.below(30)), 1);
      r.client_key = std::string(1, static_cast<char>('a' + rng.below(5)));
      r.priority = rng.below(4) == 0 ? -1 : 0;
      r.sampling.n = rng.below(4) == 0 ? 3 : 1;
      for (std::int32_t i = 0; i < r.sampling.n; ++i) {
        ASSERT_TRUE(h.scheduler.add(h.sequence(r)));
        waiting.push_back(h.sequences.back().get());
      }
    }
    for (int gone = 0; gone < 5; ++gone) {
      const std::size_t i = rng.below(waiting.size());
      h.scheduler.cancel(*h.sequences[waiting[i]->id - 1]);
      waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(i));
    }
    std::vector<SequenceId> admitted;
    for (const SlotAssignment& slot : h.plan().assignments) admitted.push_back(slot.sequence->id);
    EXPECT_EQ(admitted, admitted_by_the_rule(waiting)) << round;
    h.commit();
  }
}

TEST(PolicyVtc, ThePreemptedDoNotPayTwice) {
  KvManager kv({.block_size = 4,
                .group_windows = {0},
                .num_blocks = 20,
                .max_num_seqs = 2,
                .max_model_len = 32,
                .max_query_len = 32});
  SchedulerOptions scheduler_options;
  scheduler_options.token_budget = 32;
  scheduler_options.max_num_seqs = 2;
  scheduler_options.max_model_len = 32;
  SchedulerState state(scheduler_options, kv);
  Request request;
  Sequence sequence;
  sequence.id = 1;
  sequence.request = &request;
  sequence.tokens = {1, 2, 3, 4, 5};
  sequence.prompt_len = 5;
  sequence.max_len = 10;
  const std::int32_t client = state.clients.arrive("a");
  state.waiting.insert({{0, 0}, &sequence, client});
  VtcPolicy policy;
  for (int round = 0; round < 2; ++round) {
    BatchPlan plan;
    PlanPass pass(state, TimePoint{}, ResourceView{}, plan);
    policy.plan(pass);
    ASSERT_EQ(plan.rows.size(), 1U);
    EXPECT_EQ(state.clients.served(client), 5);
    state.running.in_flight[0] = 0;  // as after a commit
    sequence.in_flight = 0;
    sequence.computed = 5;
    state.preempt(sequence.slot, plan);
  }
}

// Three clients that always have something queued; how far apart their service gets, as `vtc`
// counts it.
std::int64_t widest_gap(const std::string& policy) {
  HarnessOptions o = options(4);
  o.policy = policy;
  SchedulerHarness h(o);
  const std::map<std::string, std::pair<std::int32_t, std::int32_t>> wants = {
      {"short", {4, 6}}, {"long", {40, 10}}, {"talks", {3, 60}}};
  std::map<std::string, std::int64_t> served;
  const auto refill = [&] {
    std::map<std::string, int> queued;
    for (const auto& s : h.sequences) {
      if (s->state == SequenceState::kWaiting) ++queued[s->request->client_key];
    }
    for (const auto& [client, want] : wants) {
      for (int i = queued[client]; i < 3; ++i) add(h, client, want.first, want.second);
    }
  };
  std::int64_t widest = 0;
  for (int step = 0; step < 1500; ++step) {
    refill();
    const BatchPlan& plan = h.plan();
    for (const PlanRow& row : plan.rows) {
      const Sequence& s = *h.sequences[row.sequence - 1];
      const bool decode = row.context_len >= s.prompt_len;
      served[s.request->client_key] += decode ? 2 : row.query_len;
    }
    h.commit();
    const auto [least, most] = std::minmax_element(
        served.begin(), served.end(), [](auto& a, auto& b) { return a.second < b.second; });
    if (served.size() == wants.size()) widest = std::max(widest, most->second - least->second);
  }
  return widest;
}

// The paper's bound: 2 max(w_in L_in, w_out M), M = tokens that run at once.
TEST(PolicyVtc, BackloggedClientsAreServedAlikeWhateverTheyAskFor) {
  const std::int64_t bound = 2 * 2 * 4 * (3 + 60);
  EXPECT_LE(widest_gap("vtc"), bound);
  EXPECT_GT(widest_gap("stall-free"), 4 * bound);
}

}  // namespace
}  // namespace sluice
