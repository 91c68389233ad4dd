#include "server/key_quotas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace sluice {
namespace {

using std::chrono_literals::operator""s;
using testing::HasSubstr;

KeyLimits limits_of(std::string_view name, std::string_view value) {
  KeyLimits limits;
  EXPECT_TRUE(read_limit(name, value, limits)) << name;
  return limits;
}

class KeyQuotasTest : public testing::Test {
 protected:
  ManualClock clock_;
  KeyQuotas quotas_{clock_, 40};
};

TEST_F(KeyQuotasTest, RequestsOfAMinuteRefillEvenly) {
  const KeyLimits limits = limits_of("rpm", "2");
  EXPECT_TRUE(quotas_.begin("a", limits));
  EXPECT_TRUE(quotas_.begin("a", limits));
  const auto refused = quotas_.begin("a", limits);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, 429);
  EXPECT_EQ(refused.error().code, "rate_limit_exceeded");
  EXPECT_EQ(refused.error().type, "requests");
  EXPECT_EQ(refused.error().retry_after_s, 30);
  EXPECT_THAT(refused.error().message, HasSubstr("'a' has used its 2 requests a minute"));
  EXPECT_TRUE(quotas_.begin("b", limits)) << "others have their own";
  clock_.advance(29s);
  EXPECT_FALSE(quotas_.begin("a", limits));
  clock_.advance(1s);
  EXPECT_TRUE(quotas_.begin("a", limits));
  EXPECT_FALSE(quotas_.begin("a", limits));
  EXPECT_TRUE(quotas_.begin("a", KeyLimits{})) << "a reload took the limit away";
}

TEST_F(KeyQuotasTest, OutputTokensOverdrawAndLaterCallsWait) {
  const KeyLimits limits = limits_of("tpm", "600");
  auto lease = quotas_.begin("a", limits);
  ASSERT_TRUE(lease);
  EXPECT_FALSE(quotas_.take_prompt(*lease, {.requests = 1, .tokens = 500}));
  lease->take_output(400);
  auto next = quotas_.begin("a", limits);
  ASSERT_TRUE(next);
  const auto refused = quotas_.take_prompt(*next, {.requests = 1, .tokens = 100});
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->type, "tokens");
  EXPECT_EQ(refused->retry_after_s, 40);  // 300 overdrawn and 100 wanted, at 10 a second
  clock_.advance(40s);
  EXPECT_FALSE(quotas_.take_prompt(*next, {.requests = 1, .tokens = 100}));
}

TEST_F(KeyQuotasTest, APromptBeyondAMinuteNeedsAFullBucket) {
  const KeyLimits limits = limits_of("tpm", "60");
  auto lease = quotas_.begin("a", limits);
  EXPECT_FALSE(quotas_.take_prompt(*lease, {.requests = 1, .tokens = 1000}));
  clock_.advance(999s);
  EXPECT_TRUE(quotas_.take_prompt(*lease, {.requests = 1, .tokens = 1000}));
  clock_.advance(1s);
  EXPECT_FALSE(quotas_.take_prompt(*lease, {.requests = 1, .tokens = 1000}));
}

TEST_F(KeyQuotasTest, EndedCallsGiveTheirPlacesBack) {
  KeyLimits limits = limits_of("concurrency", "2");
  limits.queue_percent = 10;  // of 40
  auto first = quotas_.begin("a", limits);
  auto second = quotas_.begin("a", limits);
  ASSERT_TRUE(second);
  ASSERT_FALSE(quotas_.begin("a", limits));
  EXPECT_FALSE(quotas_.take_prompt(*first, {.requests = 3, .tokens = 1}));
  EXPECT_TRUE(quotas_.take_prompt(*second, {.requests = 2, .tokens = 1}));
  KeyQuotas::Lease moved = *std::move(first);
  moved = {};
  EXPECT_FALSE(quotas_.take_prompt(*second, {.requests = 4, .tokens = 1}));
  EXPECT_TRUE(quotas_.begin("a", limits));
}

TEST_F(KeyQuotasTest, APriorityThatIsTooGoodIsNamed) {
  auto lease = quotas_.begin("a", limits_of("priority", "-1"));
  EXPECT_FALSE(quotas_.take_prompt(*lease, {.requests = 1, .tokens = 1, .priority = -1}));
  const auto refused = quotas_.take_prompt(*lease, {.requests = 1, .tokens = 1, .priority = -2});
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 400);
  EXPECT_EQ(refused->param, "priority");
}

TEST_F(KeyQuotasTest, HeadersAreOpenAis) {
  KeyLimits limits = limits_of("rpm", "60");
  limits.tokens_per_minute = 600;
  auto lease = quotas_.begin("a", limits);
  EXPECT_FALSE(quotas_.take_prompt(*lease, {.requests = 1, .tokens = 25}));
  std::string text;
  for (const http::Header& header : quotas_.headers(*lease)) {
    text += header.name + ": " + header.value + "\n";
  }
  EXPECT_EQ(text,
            "x-ratelimit-limit-requests: 60\nx-ratelimit-remaining-requests: 59\n"
            "x-ratelimit-reset-requests: 1s\nx-ratelimit-limit-tokens: 600\n"
            "x-ratelimit-remaining-tokens: 575\nx-ratelimit-reset-tokens: 2.5s\n");
  EXPECT_TRUE(quotas_.headers({}).empty());
}

TEST_F(KeyQuotasTest, CallsWithoutAKeyHaveNoLimits) {
  KeyQuotas::Lease none;
  EXPECT_FALSE(quotas_.take_prompt(none, {.requests = 1000, .tokens = 1 << 30}));
  none.take_output(5);
}

TEST_F(KeyQuotasTest, UseElsewhereTakesFromTheSameBuckets) {
  KeyLimits limits = limits_of("rpm", "4");
  ASSERT_TRUE(read_limit("tpm", "600", limits));
  ASSERT_TRUE(read_limit("concurrency", "3", limits));
  quotas_.use_elsewhere("a", limits, {.requests = 2, .tokens = 500, .calls = 1});
  auto first = quotas_.begin("a", limits);
  ASSERT_TRUE(first);
  EXPECT_TRUE(quotas_.take_prompt(*first, {.requests = 1, .tokens = 101}));
  EXPECT_FALSE(quotas_.take_prompt(*first, {.requests = 1, .tokens = 100}));
  auto second = quotas_.begin("a", limits);
  ASSERT_TRUE(second);
  EXPECT_THAT(quotas_.begin("a", limits).error().message, HasSubstr("has 3 calls"));
  const auto totals = quotas_.totals();
  EXPECT_EQ(totals.at("a").requests, 2) << "the own ones only";
  EXPECT_EQ(totals.at("a").tokens, 100);
  EXPECT_EQ(totals.at("a").calls, 2);
  quotas_.use_elsewhere("a", limits, {});
  EXPECT_THAT(quotas_.begin("a", limits).error().message, HasSubstr("4 requests a minute"));
}

TEST_F(KeyQuotasTest, DebtByUseElsewhereIsAMinuteAtMost) {
  const KeyLimits limits = limits_of("rpm", "60");
  quotas_.use_elsewhere("a", limits, {.requests = 1'000'000});
  quotas_.use_elsewhere("a", limits, {.requests = 1'000'000});
  clock_.advance(60s);
  EXPECT_FALSE(quotas_.begin("a", limits));
  clock_.advance(1s);
  EXPECT_TRUE(quotas_.begin("a", limits));
}

TEST_F(KeyQuotasTest, PartsOfALimitAddUpToIt) {
  KeyLimits limits = limits_of("rpm", "4");
  ASSERT_TRUE(read_limit("concurrency", "5", limits));
  KeyQuotas other(clock_, 40);
  std::vector<KeyQuotas::Lease> leases;
  for (KeyQuotas* quotas : {&quotas_, &other}) {
    quotas->use_elsewhere("a", limits, {.calls = 4});
    quotas->set_parts(2);
    for (int i = 0; i < 5; ++i) {
      if (auto lease = quotas->begin("a", limits)) leases.push_back(*std::move(lease));
    }
  }
  EXPECT_EQ(leases.size(), 4U) << "rpm / 2 each; calls elsewhere do not count then";
  quotas_.set_parts(100);
  leases.clear();
  clock_.advance(60s);
  EXPECT_TRUE(quotas_.begin("a", limits)) << "at least 1";
}

}  // namespace
}  // namespace sluice
