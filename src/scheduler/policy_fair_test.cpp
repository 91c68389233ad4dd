#include "scheduler/policy_fair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/rng.h"
#include "scheduler/sequence_names.h"
#include "tests/support/scheduler_harness.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

std::vector<std::string> fair_steps(SchedulerHarness& h, int count) {
  std::vector<std::string> lines;
  for (int i = 0; i < count; ++i) lines.push_back(h.step());
  return lines;
}

// A plan's rows and then the blocks that move: "1:1@8, save 2:0-2, load 3:1" are the first three
// blocks of sequence 2 and the second one of sequence 3.
std::string rows_and_moves(const SchedulerHarness& h, const BatchPlan& plan) {
  struct Move {
    bool loads = false;
    SequenceId owner = 0;
    std::int64_t first = 0;
    std::int64_t last = 0;
  };
  std::vector<Move> moves;
  for (const PlanTransfer& transfer : plan.transfers) {
    const PagedBlock& block = plan.pages[static_cast<std::size_t>(transfer.resource)];
    const bool loads = transfer.kind == TransferKind::kLoadBlock;
    for (const auto& sequence : h.sequences) {
      const auto& names = known_hashes(*sequence);
      const auto found = std::ranges::find(names, block.name);
      if (found == names.end()) continue;
      const std::int64_t index = found - names.begin();
      if (moves.empty() || moves.back().loads != loads || moves.back().owner != sequence->id) {
        moves.push_back({loads, sequence->id, index, index});
      }
      moves.back().first = std::min(moves.back().first, index);
      moves.back().last = std::max(moves.back().last, index);
    }
  }
  std::string text = SchedulerHarness::describe(plan);
  for (const Move& move : moves) {
    text += text.empty() ? "" : ", ";
    text += move.loads ? "load " : "save ";
    text += std::to_string(move.owner) + ':' + std::to_string(move.first);
    if (move.last > move.first) text += '-' + std::to_string(move.last);
  }
  return text;
}

// Steps that take `each`. Blocks that no sequence uses are in the tier only when they are saved.
std::vector<std::string> steps_with_moves(SchedulerHarness& h, int count, Duration each = {}) {
  std::vector<std::string> lines;
  for (int i = 0; i < count; ++i) {
    lines.push_back(rows_and_moves(h, h.plan()));
    if (h.committed < h.planned) h.commit();
    h.kv.drop_cached();
    h.now = h.now + each;
  }
  return lines;
}

// The lines of steps, in which one sequence's decodes in a row are one: "1:1@8 to 11".
std::vector<std::string> with_decodes_joined(const std::vector<std::string>& lines) {
  std::vector<std::string> joined;
  std::string next;  // the line that would go on
  for (const std::string& line : lines) {
    const std::size_t at = line.find('@');
    const bool decode = line.find(":1@") == 1 && line.find(' ') == std::string::npos;
    if (decode && line == next) {
      joined.back() =
          joined.back().substr(0, joined.back().find(' ')) + " to " + line.substr(at + 1);
    } else {
      joined.push_back(line);
    }
    next =
        decode ? line.substr(0, at + 1) + std::to_string(std::stoi(line.substr(at + 1)) + 1) : "";
  }
  return joined;
}

// Figure 6 of the Aqua paper: memory for three; A (1) and B (2) decode, C (3) and D (4) arrive
// together. D starts in the slice after C's first, not after A's end. Here the three places are
// slots, and turns of 4 tokens end at borders of 4 tokens.
TEST(FairPolicy, Figure6OfAqua) {
  SchedulerHarness h({.policy = "fair", .max_num_seqs = 3, .turn_tokens = 4});
  h.add(8, 12);
  h.add(8, 12);
  EXPECT_THAT(fair_steps(h, 3), ElementsAre("1:8@0 2:8@0", "1:1@8 2:1@8", "1:1@9 2:1@9"));
  h.add(8, 12);
  h.add(8, 12);
  // Service counts from the moment that D waits: then A, B and C have had none.
  EXPECT_THAT(fair_steps(h, 15), ElementsAre("1:1@10 2:1@10 3:8@0",   //
                                             "1:1@11 2:1@11 3:1@8",   //
                                             "1:1@12 3:1@9 4:8@0",    // at its border B yields to D
                                             "1:1@13 3:1@10 4:1@8",   //
                                             "1:1@14 3:1@11 4:1@9",   //
                                             "1:1@15 4:1@10 2:1@12",  // C, served 4, to B, served 1
                                             "2:1@13 4:1@11 3:1@12",  // A, served 5, to C
                                             "2:1@14 3:1@13 4:1@12",  // D, served 5, goes on
                                             "2:1@15 3:1@14 4:1@13",  //
                                             "2:1@16 3:1@15 4:1@14",  // B, served 5, too
                                             "2:1@17 4:1@15 1:1@16",  // C, served 8, yields to A
                                             "1:1@17 2:1@18 3:1@16",  // D, served 9, to C
                                             "1:1@18 3:1@17 4:1@16",  // B has ended
                                             "3:1@18 4:1@17",         //
                                             "4:1@18"));
  EXPECT_FALSE(h.scheduler.has_work());
}

// The same with a tier: the schedule is that of free paging, one plan later where a load must end.
TEST(FairPolicy, Figure6OfAquaWithTransfers) {
  SchedulerHarness h({.policy = "fair", .max_num_seqs = 3, .tier_pages = 64, .turn_tokens = 4});
  h.add(8, 12);
  h.add(8, 12);
  EXPECT_THAT(steps_with_moves(h, 3), ElementsAre("1:8@0 2:8@0", "1:1@8 2:1@8", "1:1@9 2:1@9"));
  h.add(8, 12);
  h.add(8, 12);
  EXPECT_THAT(steps_with_moves(h, 16),
              ElementsAre("1:1@10 2:1@10 3:8@0",                    //
                          "1:1@11 2:1@11 3:1@8",                    //
                          "1:1@12 3:1@9 4:8@0, save 2:0-2",         // B yields to D
                          "1:1@13 3:1@10 4:1@8",                    //
                          "1:1@14 3:1@11 4:1@9",                    //
                          "1:1@15 4:1@10, save 3:0-2, load 2:0-2",  // C to B
                          "4:1@11 2:1@12 3:1@12, save 1:0-3",       // A to C, still in memory
                          "2:1@13 3:1@13 4:1@12",                   // D, served 5, goes on
                          "2:1@14 3:1@14 4:1@13",                   //
                          "2:1@15 3:1@15 4:1@14",                   //
                          "2:1@16 4:1@15, save 3:3, load 1:0-3",    // C, served 8, to A
                          "2:1@17 1:1@16, save 4:0-3, load 3:0-2",  // D to C
                          "1:1@17 2:1@18 3:1@16",                   //
                          "1:1@18 3:1@17, load 4:0-3",              // B has ended
                          "3:1@18 4:1@16",                          //
                          "4:1@17"));
  h.run_to_end();
}

// One slot. When C (3) comes, A (1) has been served 12 tokens, and B (2), lifted to A's first 4,
// is about to have as much. So C begins with 12, has one turn, and then waits for both.
TEST(FairPolicy, ANewcomersLiftWithTransfers) {
  SchedulerHarness h({.policy = "fair", .max_num_seqs = 1, .tier_pages = 64, .turn_tokens = 4});
  h.add(4, 21);
  h.add(4, 21);
  EXPECT_THAT(with_decodes_joined(steps_with_moves(h, 22)),
              ElementsAre("1:4@0", "1:1@4 to 7",     //
                          "2:4@0, save 1:0-1",       // A, served 4, yields to B
                          "2:1@4 to 7",              //
                          "save 2:0-1, load 1:0-1",  // B, served 8, to A
                          "1:1@8 to 15",             // at 12 both have 8: A goes on
                          "save 1:2-3, load 2:0-1",  // A, served 12, to B
                          "2:1@8 to 9"));
  h.add(4, 9);
  EXPECT_THAT(with_decodes_joined(steps_with_moves(h, 36)),
              ElementsAre("2:1@10 to 11",               //
                          "3:4@0, save 2:2",            // B, served 12, yields to C
                          "3:1@4 to 7",                 //
                          "save 3:0-1, load 1:0-3",     // C, served 16, to A
                          "1:1@16 to 19",               //
                          "save 1:4, load 2:0-2",       // A, served 16, to B
                          "2:1@12 to 19",               // at 16 all have 16: B goes on
                          "save 2:3-4, load 1:0-4",     // B, served 20, to A, the first of two
                          "1:1@20 to 23",               // its end
                          "load 3:0-1", "3:1@8 to 11",  // C, served 16, before B; its end
                          "load 2:0-4", "2:1@20 to 23"));
  EXPECT_FALSE(h.scheduler.has_work());
}

// One slot, and steps of a millisecond. A return takes two: the load runs in one, and the end of
// the next shows that the sequence is back. So its turn of 4 tokens lasts for 18 more steps, and
// then to the next border.
TEST(FairPolicy, AStretchedTurnWithTransfers) {
  SchedulerHarness h({.policy = "fair", .max_num_seqs = 1, .tier_pages = 64, .turn_tokens = 4});
  h.add(4, 33);
  h.add(4, 33);
  EXPECT_THAT(with_decodes_joined(steps_with_moves(h, 70, milliseconds(1))),
              ElementsAre("1:4@0", "1:1@4 to 7",     //
                          "2:4@0, save 1:0-1",       //
                          "2:1@4 to 7",              //
                          "save 2:0-1, load 1:0-1",  //
                          "1:1@8 to 27",             // 19 steps pay for two; 28 is a border
                          "save 1:2-6, load 2:0-1",  //
                          "2:1@8 to 27",             //
                          "save 2:2-6, load 1:0-6",  //
                          "1:1@28 to 35",            // its end
                          "load 2:0-6", "2:1@28 to 35"));
  EXPECT_FALSE(h.scheduler.has_work());
}

// The blocks of this sequence that the tier has are at the fast level, the first `count` of them.
void tell_fast(SchedulerHarness& h, const Sequence& sequence, std::int32_t count) {
  const std::vector<Hash128>& names = known_hashes(sequence);
  for (std::int32_t b = 0; b < count; ++b) {
    const std::int32_t page = h.kv.tier().find(names[static_cast<std::size_t>(b)], 0);
    ASSERT_NE(page, TierIndex::kNoPage);
    h.page_levels.push_back({page, TierLevel::kFast});
  }
}

HarnessOptions meeting_with_two_levels() {
  return {.policy = "fair",
          .max_num_seqs = 1,
          .tier_pages = 64,
          .turn_tokens = 4,
          .meeting_tokens = 4,
          .meeting_factor = std::numeric_limits<double>::infinity()};
}

// One slot. A (1) returns with the fast level's beginning loaded, and will load the rest from the
// back. C (3) has come meanwhile, and A goes before it, as if all its loads had ended.
TEST(FairPolicy, AReturnerThatHasItsBeginningGoesBeforeNewcomers) {
  SchedulerHarness h(meeting_with_two_levels());
  Sequence& a = h.add(16, 12);
  h.add(4, 12);
  EXPECT_THAT(with_decodes_joined(steps_with_moves(h, 10)),
              ElementsAre("1:16@0", "1:1@16 to 19", "2:4@0, save 1:0-4", "2:1@4 to 7"));
  tell_fast(h, a, 2);
  EXPECT_THAT(steps_with_moves(h, 1), ElementsAre("save 2:0-1, load 1:0-1"));
  h.add(4, 12);
  EXPECT_THAT(steps_with_moves(h, 2), ElementsAre("1:8@8, load 1:4", "1:1@20"));
  h.run_to_end();
  for (const auto& s : h.sequences) EXPECT_EQ(s->tokens, h.expected(*s).tokens);
}

// R (2) runs, and A (4) loads the two blocks of its beginning that are at the fast level. The other
// blocks of its turn stay reserved meanwhile, also those that only the slow level has.
TEST(FairPolicy, ReservesWhatASequenceNeedsBehindItsBeginning) {
  HarnessOptions options = meeting_with_two_levels();
  options.max_num_seqs = 3;
  options.num_blocks = 15;
  SchedulerHarness h(options);
  constexpr TokenId kChat = 500;
  Sequence& chat = h.add(33, 1, kChat);
  h.run_to_end();
  h.save_all();
  h.kv.drop_cached();
  tell_fast(h, chat, 2);
  h.add(8, 40);
  h.step();
  Sequence& too_long = h.add(50, 4);  // so that sequences take turns
  h.step();
  Sequence& a = h.add(33, 4, kChat);
  h.scheduler.cancel(too_long);
  h.executor.hold_transfers();
  h.step();
  EXPECT_EQ(h.executor.transfers().size(), 2U);
  EXPECT_EQ(a.paging, Paging::kLoading);
  Sequence& c = h.add(16, 4, 800);
  h.step();
  EXPECT_EQ(c.state, SequenceState::kWaiting);
  for (int i = 0; i < 2; ++i) h.executor.end_transfer(0, false);
  h.step();
  EXPECT_EQ(a.state, SequenceState::kRunning);
  while (h.scheduler.has_work()) {
    h.step();
    while (!h.executor.transfers().empty()) h.executor.end_transfer(0, false);
  }
  for (const Sequence* const each : {&a, &c}) EXPECT_EQ(each->tokens, h.expected(*each).tokens);
}

TEST(FairPolicy, ANewcomerIsLiftedToTheLeastServed) {
  SchedulerHarness h({.policy = "fair", .max_num_seqs = 1, .max_model_len = 256, .turn_tokens = 4});
  Sequence& a = h.add(4, 200);
  Sequence& b = h.add(4, 200);
  for (int i = 0; i < 100; ++i) h.step();
  EXPECT_NEAR(a.output_len(), b.output_len(), 8);
  // It begins at the next border. From then on all three have the same: C does not catch up.
  Sequence& c = h.add(4, 200);
  const std::int32_t before[] = {a.output_len(), b.output_len()};
  for (int i = 0; i < 6; ++i) h.step();
  EXPECT_GT(c.output_len(), 0);
  for (int i = 0; i < 114; ++i) h.step();
  EXPECT_NEAR(a.output_len() - before[0], 40, 8);
  EXPECT_NEAR(b.output_len() - before[1], 40, 8);
  EXPECT_NEAR(c.output_len(), 40, 8);
  h.run_to_end();
}

// Two streams of 40 tokens on one slot. A step takes 3 ms, a load 9 ms: a turn of 4 tokens does not
// pay for it, so each stream has its turn to the end, and then the other.
TEST(FairPolicy, ATurnStretchesUntilItsReturnTookATenthOfIt) {
  for (const bool slow : {false, true}) {
    SchedulerHarness h({.policy = "fair",
                        .max_num_seqs = 1,
                        .max_model_len = 256,
                        .num_blocks = 32,
                        .tier_pages = 64,
                        .turn_tokens = 4});
    h.executor.hold_transfers();
    h.add(20, 80);
    h.add(20, 80);
    std::string turns;
    std::vector<int> steps;  // of each turn
    int waited = 0;
    while (h.scheduler.has_work()) {
      const std::string step = h.step();
      h.now = h.now + milliseconds(3);
      waited = step.empty() ? waited + 1 : 0;
      while ((!slow || waited >= 3) && !h.executor.transfers().empty()) {
        h.executor.end_transfer(0, false);
      }
      if (step.empty()) continue;
      const char letter = step[0] == '1' ? 'A' : 'B';
      if (turns.empty() || turns.back() != letter) {
        turns += letter;
        steps.push_back(0);
      }
      ++steps.back();
    }
    // The first turns find their blocks in memory, the last ones end with their sequences.
    ASSERT_GT(steps.size(), 6U);
    const int longest = *std::max_element(steps.begin() + 2, steps.end() - 2);
    if (slow) {
      EXPECT_EQ(turns, "ABABABAB");
      EXPECT_GE(steps[6], 81 / 3);
    } else {
      EXPECT_LE(longest, 20);
    }
  }
}

// Runs both policies on the same requests. Memory suffices for all of them.
TEST(FairPolicy, EqualsStallFreeWhileNoSequenceWaitsForRoom) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::vector<std::string> schedules[2];
    for (const bool fair : {false, true}) {
      SplitMix64 rng(seed);
      SchedulerHarness h({.policy = fair ? "fair" : "stall-free", .token_budget = 16});
      for (int i = 0; i < 100 || h.scheduler.has_work(); ++i) {
        const bool arrives = i < 100 && rng.below(8) == 0;
        const auto length = static_cast<std::int32_t>(1 + rng.below(40));
        const auto output = static_cast<std::int32_t>(1 + rng.below(20));
        if (arrives && h.scheduler.num_running() + h.scheduler.num_waiting() < 8) {
          h.add(length, output);
        }
        schedules[fair ? 1 : 0].push_back(h.step());
      }
    }
    EXPECT_EQ(schedules[0], schedules[1]) << seed;
  }
}

struct BurstReport {
  std::int32_t worst_first_token = 0;  // in steps
  std::int32_t makespan = 0;
  std::int64_t computed = 0;  // tokens
  std::int64_t needed = 0;
  std::int64_t saved = 0;  // blocks
  std::int64_t full = 0;   // blocks of all sequences at their ends
};

// 32 requests at once, with prompts of 64 and answers of 256, in memory for three.
BurstReport run_burst(const char* policy, std::int32_t tier_pages) {
  SchedulerHarness h({.policy = policy,
                      .token_budget = 256,
                      .max_num_seqs = 64,
                      .max_model_len = 512,
                      .block_size = 16,
                      .num_blocks = 61,
                      .decode_headroom = 32,
                      .tier_pages = tier_pages});
  for (int i = 0; i < 32; ++i) h.add(64, 256, 30 * i);
  BurstReport report;
  while (h.scheduler.has_work()) {
    const BatchPlan& plan = h.plan();
    report.makespan += 1;
    for (const PlanRow& row : plan.rows) report.computed += row.query_len;
    if (h.committed < h.planned) h.commit();
    for (const auto& s : h.sequences) {
      if (s->output_len() == 0) report.worst_first_token = report.makespan + 1;
    }
    h.now = h.now + milliseconds(1);
  }
  for (const auto& s : h.sequences) {
    EXPECT_EQ(s->tokens, h.expected(*s).tokens);
    report.needed += s->length() - 1;
    report.full += (s->length() - 1) / 16;
  }
  report.saved = h.scheduler.paging_stats().saved_blocks;
  return report;
}

TEST(FairPolicy, InABurstBeyondMemoryEveryPromptStartsToAnswer) {
  const BurstReport first_come = run_burst("stall-free", 4096);
  const BurstReport fair = run_burst("fair", 4096);
  EXPECT_LT(fair.worst_first_token, first_come.worst_first_token / 6);
  EXPECT_LT(fair.makespan, first_come.makespan * 1.05);
  // Nothing is computed twice and no block is saved twice.
  EXPECT_EQ(fair.computed, fair.needed);
  EXPECT_LE(fair.saved, fair.full);
  EXPECT_GT(first_come.computed, first_come.needed);
}

TEST(FairPolicy, WithoutATierTheSameBurstIsComputedAgain) {
  const BurstReport first_come = run_burst("stall-free", 0);
  const BurstReport fair = run_burst("fair", 0);
  EXPECT_LT(fair.worst_first_token, first_come.worst_first_token / 6);
  EXPECT_GT(fair.computed, fair.needed);
}

// Random arrivals at a full server: counts the turns that others begin while a sequence waits.
TEST(FairPolicy, WaitsAreBounded) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SplitMix64 rng(seed);
    SchedulerHarness h({.policy = "fair",
                        .token_budget = 32,
                        .max_num_seqs = static_cast<std::int32_t>(2 + rng.below(4)),
                        .max_model_len = 256,
                        .num_blocks = static_cast<std::int32_t>(66 + rng.below(60)),
                        .tier_pages = rng.below(2) == 0 ? 4096 : 0,
                        .turn_tokens = static_cast<std::int32_t>(1 + rng.below(12))});
    std::map<SequenceId, int> begun;  // turns of others since it waits
    int most_alive = 0;
    int most_begun = 0;
    for (int i = 0; i < 600 || h.scheduler.has_work(); ++i) {
      ASSERT_LT(i, 20'000) << seed;
      const int alive = h.scheduler.num_running() + h.scheduler.num_waiting();
      if (i < 600 && alive < 20 && rng.below(4) == 0) {
        const auto length = static_cast<std::int32_t>(1 + rng.below(60));
        const auto first = static_cast<TokenId>(rng.below(900));
        h.add(length, static_cast<std::int32_t>(1 + rng.below(120)), first);
      }
      most_alive = std::max(most_alive, alive + 1);
      const BatchPlan& plan = h.plan();
      for (const auto& s : h.sequences) {
        if (s->state != SequenceState::kWaiting) begun.erase(s->id);
        if (s->state == SequenceState::kWaiting) {
          int& turns = begun[s->id];
          turns += static_cast<int>(plan.assignments.size());
          most_begun = std::max(most_begun, turns);
        }
      }
      if (h.committed < h.planned) h.commit();
    }
    // Twice each other one, and once more for those that had a turn less.
    EXPECT_LE(most_begun, 3 * most_alive) << seed;
    for (const auto& s : h.sequences) EXPECT_EQ(s->tokens, h.expected(*s).tokens);
  }
}

// The output tokens of two clients while both wait; the first one is `few`.
std::map<std::string, int> tokens_of_clients(int few, int many, int steps, std::int32_t weight) {
  SchedulerHarness h({.policy = "fair", .max_num_seqs = 4, .max_model_len = 256, .turn_tokens = 4});
  const auto add = [&](const char* client, std::int32_t client_weight) {
    Request& request = h.request(8, 200);
    request.client_key = client;
    request.client_weight = client_weight;
    CHECK(h.scheduler.add(h.sequence(request)).has_value());
  };
  for (int i = 0; i < many; ++i) add("many", 1);
  for (int i = 0; i < few; ++i) add("few", weight);
  for (int i = 0; i < steps; ++i) h.step();
  std::map<std::string, int> tokens;
  for (const auto& s : h.sequences) tokens[s->request->client_key] += s->output_len();
  for (const auto& s : h.sequences) h.scheduler.cancel(*s);
  return tokens;
}

TEST(FairPolicy, ClientsShareBeforeSequencesDo) {
  auto tokens = tokens_of_clients(2, 20, 150, 1);
  EXPECT_GE(tokens["few"], 0.85 * tokens["many"]);
  tokens = tokens_of_clients(20, 20, 600, 3);
  EXPECT_NEAR(static_cast<double>(tokens["few"]) / tokens["many"], 3, 0.4);
}

TEST(FairPolicy, AMoreUrgentNewcomerMakesItsRoomAtTheNextBorder) {
  SchedulerHarness h({.policy = "fair", .max_num_seqs = 2, .max_model_len = 256, .turn_tokens = 8});
  for (int i = 0; i < 6; ++i) h.add(8, 100);
  for (int i = 0; i < 40; ++i) h.step();
  Request& urgent = h.request(8, 40);
  urgent.priority = -1;
  Sequence& sequence = h.sequence(urgent);
  ASSERT_TRUE(h.scheduler.add(sequence));
  for (int i = 0; i < 12; ++i) h.step();
  EXPECT_GT(sequence.output_len(), 0);
  for (int i = 0; i < 40; ++i) h.step();
  EXPECT_EQ(sequence.num_preemptions, 0);
  EXPECT_EQ(sequence.state, SequenceState::kFinished);
  h.run_to_end();
}

// Blocks of a window are shared, so a prompt that runs may lack one, and the newest sequence
// yields to it. It does not return in the same plan.
TEST(FairPolicy, ASequenceThatYieldsToAPromptDoesNotReturnAtOnce) {
  SchedulerHarness h({.policy = "fair",
                      .token_budget = 6,
                      .max_num_seqs = 6,
                      .block_size = 2,
                      .num_blocks = 39,
                      .windows = {0, 10},
                      .max_in_flight = 2,
                      .turn_tokens = 7});
  h.add(15, 17, 419);
  int yields = 0;
  for (int i = 0; h.scheduler.has_work(); ++i) {
    if (i == 1) h.add(27, 4, 7);
    if (i == 3) h.add(31, 15, 7);
    if (h.planned - h.committed == 2) h.commit();
    const BatchPlan& plan = h.plan();
    for (const SequenceId id : plan.preempted) {
      EXPECT_EQ(std::ranges::count(plan.rows, id, &PlanRow::sequence), 0) << "plan " << i;
      const Sequence& waits = *h.sequences[id - 1];
      if (waits.output_len() == 0) ++yields;
    }
    if (!plan.has_rows() && h.committed < h.planned) h.commit();
  }
  EXPECT_GT(yields, 0);  // a prompt's own sequence, so not for a turn that was over
}

}  // namespace
}  // namespace sluice
