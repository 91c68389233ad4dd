#include "gateway/usage_book.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/rng.h"

namespace sluice {
namespace {

using std::chrono::seconds;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr MachineCapacity kMachine{4, {8 * kGiB, 0, 0}};
constexpr std::size_t kHost = 0;

const UsageRow* find(const std::vector<UsageRow>& rows, const std::string& day,
                     const std::string& tenant, const std::string& function) {
  for (const UsageRow& row : rows) {
    if (row.day == day && row.tenant == tenant && row.function == function) return &row;
  }
  return nullptr;
}

TEST(UsageBookTest, CountsAFunctionAndItsShareOfTheBackbone) {
  ManualClock clock;
  UsageBook book(kMachine, 2, clock, {});
  book.add_backbone();
  book.set_backbone_bytes(0, 100);
  const std::int32_t a = book.add_function("t", "a", 0);
  const std::int32_t b = book.add_function("u", "b", 0);
  clock.advance(seconds(10));
  book.sample(a, {.live = true, .own_bytes = 50});
  book.set_active(a, true);
  book.count_request(a, 7);
  clock.advance(seconds(4));
  book.sample(a, {.live = true, .own_bytes = 50, .turn_time = seconds(3)});
  book.count_output(a, 5);
  book.sample(b, {.live = true});
  clock.advance(seconds(2));
  book.sample(a, {});
  book.set_active(a, false);
  const auto rows = book.settle("2026-11-23");
  const UsageRow& row = *find(rows, "2026-11-23", "t", "a");
  EXPECT_EQ(row.usage.requests, 1);
  EXPECT_EQ(row.prompt_tokens, 7);
  EXPECT_EQ(row.output_tokens, 5);
  EXPECT_EQ(row.usage.core_ns, Amount(3'000'000'000) * 2) << "a turn has two cores";
  EXPECT_EQ(row.usage.memory[kHost].active,
            (Amount(150) * 4 + Amount(50 + 50) * 2) * 1'000'000'000);
  EXPECT_EQ(row.usage.memory[kHost].idle, 0);
  EXPECT_EQ(find(rows, "2026-11-23", "u", "b")->usage.memory[kHost].idle,
            Amount(50) * 2 * 1'000'000'000);
}

TEST(UsageBookTest, OnlyWhatChangedIsReturnedAndRowsGoOn) {
  ManualClock clock;
  const UsageRow before{"2026-11-23", "t", "a", {.requests = 3}, 30, 40};
  UsageBook book(kMachine, 1, clock, std::vector{before});
  book.add_backbone();
  book.add_function("t", "a", 0);
  book.add_function("t", "b", 0);
  book.count_request(0, 10);
  auto rows = book.settle("2026-11-23");
  ASSERT_NE(find(rows, "2026-11-23", "t", "a"), nullptr);
  EXPECT_EQ(find(rows, "2026-11-23", "t", "a")->usage.requests, 4);
  EXPECT_EQ(find(rows, "2026-11-23", "t", "a")->prompt_tokens, 40);
  EXPECT_EQ(find(rows, "2026-11-23", "t", "b"), nullptr);
  clock.advance(seconds(1));
  rows = book.settle("2026-11-23");
  EXPECT_EQ(rows.size(), 1U) << "the platform's alone";
  book.count_request(0, 1);
  rows = book.settle("2026-11-24");
  EXPECT_EQ(find(rows, "2026-11-24", "t", "a")->usage.requests, 1);
  book.count_request(0, 1);
  rows = book.settle("2026-11-23");  // the wall clock falls behind a little
  EXPECT_EQ(find(rows, "2026-11-24", "t", "a")->usage.requests, 2);
}

// A clock that was in the future for a while, and the days before and after.
TEST(UsageBookTest, ADayInTheFutureIsLeftAndNothingCountsTwice) {
  ManualClock clock;
  UsageBook book(kMachine, 1, clock, {});
  book.add_backbone();
  book.add_function("t", "a", 0);
  for (const char* day : {"2026-12-31", "2037-01-01", "2036-12-31", "2026-12-31", "2027-01-01"}) {
    book.count_request(0, 1);
    clock.advance(seconds(1));
    book.settle(day);
  }
  const auto rows = book.rows();
  EXPECT_EQ(find(rows, "2026-12-31", "t", "a")->usage.requests, 2);
  EXPECT_EQ(find(rows, "2027-01-01", "t", "a")->usage.requests, 1);
  EXPECT_EQ(find(rows, "2037-01-01", "t", "a")->usage.requests, 2) << "one day behind is little";
  EXPECT_EQ(find(rows, "2036-12-31", "t", "a"), nullptr);
  Amount cores = 0;
  for (const UsageRow& row : rows) cores += row.usage.core_ns;
  EXPECT_TRUE(cores == Amount(5) * kMachine.cores * 1'000'000'000) << "the whole machine, once";
}

// A row that was not read would be replaced by one that begins at zero.
TEST(UsageBookTest, ADayWhoseRowsWereNotReadIsNotGoneBackTo) {
  ManualClock clock;
  UsageBook book(kMachine, 1, clock, {}, "2037-01-01");
  book.add_backbone();
  book.add_function("t", "a", 0);
  book.settle("2037-01-05");
  book.count_request(0, 1);
  const auto rows = book.settle("2026-11-25");
  EXPECT_EQ(book.day(), "2037-01-05");
  EXPECT_EQ(find(rows, "2037-01-05", "t", "a")->usage.requests, 1);
  EXPECT_EQ(find(book.rows(), "2026-11-25", "t", "a"), nullptr);
  book.settle("2037-01-02");
  EXPECT_EQ(book.day(), "2037-01-02");
}

TEST(UsageBookTest, MoreMemoryThanTheMachineHasIsCutOff) {
  ManualClock clock;
  UsageBook book(kMachine, 1, clock, {});
  book.add_backbone();
  book.add_function("t", "a", 0);
  book.set_backbone_bytes(0, 6 * kGiB);
  book.sample(0, {.live = true, .own_bytes = 5 * kGiB});
  clock.advance(seconds(1));
  const auto rows = book.settle("2026-11-23");
  EXPECT_EQ(find(rows, "2026-11-23", "t", "a")->usage.memory[kHost].idle,
            Amount(8 * kGiB) * 1'000'000'000);
  EXPECT_EQ(find(rows, "2026-11-23", "", "")->usage.memory[kHost].idle, 0);
}

// Whatever happens, all rows together are the machine.
TEST(UsageBookTest, AMachineThatGoesBeforeItsFunctionsDoesNotMakeThePlatformNegative) {
  ManualClock clock;
  const MachineCapacity one{2, {1000, 0, 0}};
  UsageBook book(one, 1, clock, {});
  book.add_backbone();
  book.add_function("t", "f", 0);
  book.set_capacity({4, {3000, 0, 0}});
  book.sample(0, {true, 2500, Duration(0)});
  clock.advance(Duration(10));
  book.set_capacity(one);  // the function still has 2500
  clock.advance(Duration(10));
  book.sample(0, {false, 0, Duration(0)});
  book.set_capacity(one);
  clock.advance(Duration(10));
  Amount all = 0;
  for (const UsageRow& row : book.settle("2026-11-25")) {
    all += row.usage.memory[0].active + row.usage.memory[0].idle;
  }
  EXPECT_EQ(static_cast<std::int64_t>(all), 3000 * 10 + 2500 * 10 + 1000 * 10);
}

TEST(UsageBookTest, RowsAreTheWholeMachine) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    SplitMix64 rng(seed);
    ManualClock clock;
    UsageBook book(kMachine, 2, clock, {});
    for (int b = 0; b < 3; ++b) book.add_backbone();
    for (std::int32_t f = 0; f < 6; ++f) book.add_function("t", std::to_string(f), f % 3);
    std::int64_t passed = 0;
    std::vector<bool> live(6);
    std::int64_t busy = 0;  // turn time not used yet
    for (int step = 0; step < 300; ++step) {
      const auto f = static_cast<std::int32_t>(rng.below(6));
      const auto ns = static_cast<std::int64_t>(rng.below(1'000'000'000));
      clock.advance(Duration(ns));
      passed += ns;
      busy += ns;
      switch (rng.below(4)) {
        case 0:
          book.set_backbone_bytes(f % 3,
                                  static_cast<std::int64_t>(rng.below(std::uint64_t{4} << 30)));
          break;
        case 1: book.set_active(f, rng.below(2) == 0); break;
        default: {
          const auto turn =
              static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(busy) + 1));
          busy -= turn;
          const bool lives = rng.below(3) > 0;
          book.sample(f,
                      {.live = lives,
                       .own_bytes =
                           lives ? static_cast<std::int64_t>(rng.below(std::uint64_t{3} << 30)) : 0,
                       .turn_time = Duration(turn)});
        }
      }
      if (rng.below(10) == 0) book.settle("2026-11-" + std::to_string(10 + step / 100));
    }
    book.settle("2026-11-30");
    FunctionUsage sum;
    for (const UsageRow& row : book.rows()) add_usage(row.usage, sum);
    EXPECT_EQ(sum.core_ns, Amount(passed) * kMachine.cores);
    EXPECT_EQ(sum.memory[kHost].active + sum.memory[kHost].idle,
              Amount(passed) * kMachine.bytes[kHost]);
  }
}

TEST(UsageBookTest, MoneyOfADayFollowsTheTiersOfItsMonth) {
  ManualClock clock;
  PriceList prices;
  prices.request_units = 1;
  prices.tiers = {{10, 1.0}, {1e18, 0.5}};
  std::vector<UsageRow> rows(4);
  rows[0] = {"2026-10-30", "t", "a", {.requests = 100}};
  rows[1] = {"2026-11-20", "t", "a", {.requests = 8}};
  rows[2] = {"2026-11-23", "t", "a", {.requests = 1}};
  rows[3] = {"2026-11-23", "u", "a", {.requests = 1000}};
  UsageBook book(kMachine, 1, clock, rows);
  book.add_backbone();
  book.add_function("t", "b", 0);
  for (int i = 0; i < 3; ++i) book.count_request(0, 0);
  book.settle("2026-11-23");
  EXPECT_DOUBLE_EQ(book.money_of_day("t", prices), 2 * 1.0 + 2 * 0.5);
  EXPECT_DOUBLE_EQ(book.money_of_day("v", prices), 0);
  book.add_function("u", "b", 0);
  UsageBook::DayCosts costs(book, prices);
  EXPECT_DOUBLE_EQ(costs.of(0), 3.0 * 3 / 4);  // of 't', of which another one has a call
  EXPECT_DOUBLE_EQ(costs.of(1), 0);
  EXPECT_DOUBLE_EQ(costs.platform(), book.money_of_day("", prices));
}

}  // namespace
}  // namespace sluice
