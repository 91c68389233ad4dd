// Small lives walked through completely, under every policy: a cancel at each moment of each
// sequence, and every amount of memory from what the longest sequence needs alone to plenty.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/support/scheduler_harness.h"

namespace sluice {
namespace {

class SchedulerPhases : public testing::TestWithParam<std::string_view> {
 protected:
  static HarnessOptions options(int max_in_flight, std::int32_t num_blocks) {
    return {.policy = std::string(GetParam()),
            .token_budget = 7,
            .max_num_seqs = 4,
            .max_model_len = 40,
            .num_blocks = num_blocks,
            .max_in_flight = max_in_flight};
  }

  // Six sequences: two arrive first, two choices and two more while those run.
  static void add_first(SchedulerHarness& h) {
    h.add(9, 6);
    h.add(3, 12);
  }
  static void add_later(SchedulerHarness& h) {
    Request& r = h.request(10, 5);
    r.sampling.n = 2;
    for (int i = 0; i < 2; ++i) CHECK(h.scheduler.add(h.sequence(r)).has_value());
    h.add(17, 4);
    h.add(1, 9);
  }

  // Calls `moment` between any two calls of the scheduler.
  template <class Moment>
  static void run(SchedulerHarness& h, std::size_t depth, Moment&& moment) {
    add_first(h);
    int turn = 0;
    while (h.scheduler.has_work() || turn < 3) {
      if (turn++ == 2) add_later(h);
      moment();
      while (h.planned - h.committed < depth && !h.plan().empty()) moment();
      if (h.committed < h.planned) h.commit();
      ASSERT_LT(turn, 500) << "somebody waits for ever";
    }
  }

  static void expect_right(const SchedulerHarness& h, const Sequence* cancelled = nullptr) {
    for (const auto& s : h.sequences) {
      const ExpectedOutput expected = h.expected(*s);
      ASSERT_EQ(s->state, SequenceState::kFinished);
      if (s.get() == cancelled && s->finish_reason == FinishReason::kCancelled) {
        ASSERT_LE(s->tokens.size(), expected.tokens.size());
        ASSERT_TRUE(std::equal(s->tokens.begin(), s->tokens.end(), expected.tokens.begin()));
        continue;
      }
      ASSERT_EQ(s->tokens, expected.tokens);
      ASSERT_EQ(s->finish_reason, expected.finish_reason);
    }
    ASSERT_EQ(h.kv.num_used_blocks(), 0);
    ASSERT_EQ(h.kv.num_available_blocks(), h.kv.num_usable_blocks());
  }
};

TEST_P(SchedulerPhases, CancelAtAnyMoment) {
  for (const int depth : {1, 2}) {
    for (std::size_t victim = 0; victim < 6; ++victim) {
      bool reached = true;
      for (int cancel_at = 0; reached; ++cancel_at) {
        SCOPED_TRACE(testing::Message() << "depth " << depth << ", sequence " << victim + 1
                                        << ", moment " << cancel_at);
        SchedulerHarness h(options(depth, 30));
        int moments = 0;
        reached = false;
        Sequence* cancelled = nullptr;
        run(h, static_cast<std::size_t>(depth), [&] {
          if (moments++ < cancel_at || cancelled != nullptr || victim >= h.sequences.size()) return;
          cancelled = h.sequences[victim].get();
          reached = cancelled->state != SequenceState::kFinished;
          h.scheduler.cancel(*cancelled);
          h.scheduler.check_integrity();
        });
        expect_right(h, cancelled);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(SchedulerPhases, AnyAmountOfMemory) {
  for (const int depth : {1, 2, 3}) {
    for (const PrefixCaching caching : {PrefixCaching::kOn, PrefixCaching::kOff}) {
      for (std::int32_t blocks = 6; blocks <= 45; ++blocks) {  // 5 usable: 20 tokens
        SCOPED_TRACE(testing::Message() << "depth " << depth << ", blocks " << blocks);
        HarnessOptions o = options(depth, blocks);
        o.prefix_caching = caching;
        SchedulerHarness h(o);
        run(h, static_cast<std::size_t>(depth), [] {});
        expect_right(h);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(SchedulerPhases, AnyNumberOfMicroBatches) {
  for (const int batches : {2, 3, 4}) {
    for (std::int32_t blocks = 6; blocks <= 45; ++blocks) {
      SCOPED_TRACE(testing::Message() << batches << " micro-batches, blocks " << blocks);
      HarnessOptions o = options(batches, blocks);
      o.micro_batches = batches;
      SchedulerHarness h(o);
      run(h, static_cast<std::size_t>(batches), [] {});
      expect_right(h);
      if (HasFatalFailure()) return;
    }
  }
}

std::string test_name(const testing::TestParamInfo<std::string_view>& info) {
  std::string name(info.param);
  std::replace(name.begin(), name.end(), '-', '_');
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Policies, SchedulerPhases, testing::ValuesIn(policy_names()), test_name);

}  // namespace
}  // namespace sluice
