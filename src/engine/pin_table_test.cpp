#include "engine/pin_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kv/block_hash.h"
#include "tests/support/fake_engine.h"

namespace sluice {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

class PinTableTest : public testing::Test {
 protected:
  void make(FakeEngineOptions options) { engine_ = make_fake_engine(model_, clock_, options); }
  void SetUp() override { make({}); }

  // A request of the tenant for a prompt of `tokens` tokens that begins at `start`.
  Request request(const std::string& tenant, int tokens, TokenId start) {
    Request r;
    r.id = next_++;
    for (int i = 0; i < tokens; ++i) r.prompt.push_back((start + i) % 49 + 1);
    r.sampling.max_tokens = 1;
    r.sampling.ignore_eos = true;
    KvIdentity identity;
    identity.block_size = engine_->kv().block_size();
    identity.tenant_salt = tenant;
    r.block_hash_root = block_hash_root(identity);
    r.block_owner.tenant = *r.block_hash_root;
    r.block_hashes = BlockHasher(*r.block_hash_root, identity.block_size).hash_prompt(r.prompt);
    return r;
  }
  Request pin_request(const std::string& tenant, const std::string& id, int tokens, TokenId start,
                      std::optional<std::int64_t> max_bytes = std::nullopt,
                      Duration ttl = seconds(60)) {
    Request r = request(tenant, tokens, start);
    r.pin = std::make_shared<const PinOrder>(PinOrder{tenant, id, "fake", ttl, max_bytes});
    return r;
  }
  void run() {
    while (engine_->has_work()) {
      ASSERT_TRUE(engine_->step());
      engine_->check_integrity();
    }
  }
  // The pin that the request makes.
  std::optional<PinStatus> pin(Request r) {
    const Status added = engine_->add_request(std::move(r));
    EXPECT_TRUE(added) << added.error().message;
    run();
    std::vector<PinResult> results;
    engine_->pins().take_results(results);
    if (results.empty()) return std::nullopt;
    EXPECT_EQ(results.size(), 1U);
    return results.front().status;
  }
  void use(const std::string& tenant, int tokens, TokenId start) {
    ASSERT_TRUE(engine_->add_request(request(tenant, tokens, start)));
    run();
  }
  std::string refusal(Request r) {
    const Status added = engine_->add_request(std::move(r));
    engine_->check_integrity();
    return added ? "" : added.error().message;
  }

  FakeModel model_;
  ManualClock clock_;
  std::unique_ptr<Engine> engine_;
  RequestId next_ = 1;
};

TEST_F(PinTableTest, ARequestMakesAPinThatOtherTrafficLeaves) {
  const auto made = pin(pin_request("a", "system", 18, 3));
  ASSERT_TRUE(made);
  EXPECT_TRUE(made->is_new);
  EXPECT_EQ(made->id, "system");
  EXPECT_EQ(made->model, "fake");
  EXPECT_EQ(made->tokens, 16);
  EXPECT_EQ(made->blocks.all, 4);
  EXPECT_EQ(made->blocks.in_memory, 4);
  EXPECT_EQ(made->expires, clock_.now() + seconds(60));
  for (TokenId start = 0; start < 40; ++start) use("b", 60, start);
  const auto later = engine_->pins().find("a", "system");
  ASSERT_TRUE(later);
  EXPECT_EQ(later->blocks.in_memory, 4);
  EXPECT_EQ(later->hits, 0);
}

TEST_F(PinTableTest, CountsRequestsThatBeginWithThePrefix) {
  pin(pin_request("a", "p", 17, 3));
  use("a", 40, 3);
  use("a", 17, 3);
  use("a", 16, 3);
  use("a", 12, 3);  // shorter
  use("a", 40, 4);  // other tokens
  use("b", 40, 3);  // another tenant
  EXPECT_EQ(engine_->pins().find("a", "p")->hits, 3);
  engine_->pins().remove("a", "p");
  use("a", 40, 3);
  EXPECT_FALSE(engine_->pins().find("a", "p"));
}

TEST_F(PinTableTest, TheSameContentsRenewAPinAndOthersReplaceIt) {
  const auto made = pin(pin_request("a", "p", 17, 3));
  use("a", 40, 3);
  clock_.advance(seconds(50));
  const auto renewed = pin(pin_request("a", "p", 17, 3));
  ASSERT_TRUE(renewed);
  EXPECT_FALSE(renewed->is_new);
  EXPECT_EQ(renewed->hits, 1);
  EXPECT_EQ(renewed->made, made->made);
  EXPECT_EQ(renewed->expires, clock_.now() + seconds(60));
  const auto replaced = pin(pin_request("a", "p", 21, 9));
  ASSERT_TRUE(replaced);
  EXPECT_FALSE(replaced->is_new);
  EXPECT_EQ(replaced->hits, 0);
  EXPECT_EQ(replaced->tokens, 20);
  EXPECT_EQ(engine_->pins().num_pins(), 1);
  EXPECT_EQ(engine_->pins().num_blocks(), 5);
  EXPECT_EQ(engine_->kv().num_pinned_blocks(), 5);
}

TEST_F(PinTableTest, ExpiresWithoutAnyOtherWork) {
  pin(pin_request("a", "p", 17, 3));
  pin(pin_request("a", "q", 17, 9, std::nullopt, seconds(100)));
  ASSERT_TRUE(engine_->wake_at());
  EXPECT_EQ(*engine_->wake_at(), clock_.now() + seconds(60));
  clock_.advance(seconds(60));
  ASSERT_TRUE(engine_->step());
  engine_->check_integrity();
  EXPECT_FALSE(engine_->pins().find("a", "p"));
  EXPECT_TRUE(engine_->pins().find("a", "q"));
  EXPECT_EQ(engine_->kv().num_pinned_blocks(), 4);
  clock_.advance(seconds(40));
  ASSERT_TRUE(engine_->step());
  EXPECT_EQ(engine_->pins().num_pins(), 0);
  EXPECT_EQ(engine_->kv().num_used_blocks(), 0);
  EXPECT_FALSE(engine_->pins().next_expiry());
}

TEST_F(PinTableTest, TenantsDoNotSeeEachOther) {
  pin(pin_request("a", "p", 17, 3));
  pin(pin_request("a", "o", 9, 3));
  pin(pin_request("b", "p", 13, 3));
  EXPECT_EQ(engine_->kv().num_pinned_blocks(), 4 + 3);  // `o` begins as `p` does
  std::vector<PinStatus> list;
  engine_->pins().append_all("a", list);
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0].id, "o");
  EXPECT_EQ(list[1].id, "p");
  EXPECT_EQ(list[1].tokens, 16);
  EXPECT_FALSE(engine_->pins().remove("b", "o"));
  EXPECT_FALSE(engine_->pins().find("", "p"));
  EXPECT_EQ(engine_->pins().find("b", "p")->tokens, 12);
  EXPECT_TRUE(engine_->pins().remove("a", "p"));
  engine_->check_integrity();
  EXPECT_EQ(engine_->kv().num_pinned_blocks(), 2 + 3);
}

TEST_F(PinTableTest, APrefixBeyondALimitOfItsOwnIsNoRateLimit) {
  for (const Request& too_large : {pin_request("a", "p", 29, 3, 6), pin_request("a", "p", 65, 3)}) {
    const Status refused = engine_->add_request(too_large);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(refused.error().message, HasSubstr("shorten the prefix"));
  }
}

TEST_F(PinTableTest, LimitsRefuseWithTheNumbers) {
  // A block has one byte here. A quarter of 63 blocks is 15.
  EXPECT_TRUE(pin(pin_request("a", "p", 17, 3, 6)));
  EXPECT_THAT(refusal(pin_request("a", "q", 13, 9, 6)),
              HasSubstr("needs 3 bytes of KV memory; the other pins of 'a' need 4 of the 6"));
  EXPECT_TRUE(pin(pin_request("a", "q", 9, 9, 6)));
  EXPECT_TRUE(pin(pin_request("a", "p", 13, 5, 6)));  // replaces 4 blocks
  EXPECT_TRUE(pin(pin_request("b", "p", 33, 5)));
  EXPECT_THAT(refusal(pin_request("b", "q", 17, 5)),
              HasSubstr("needs 4 KV blocks; all other pins need 13 of the 15"));
  engine_->pins().set_share(0);
  EXPECT_THAT(refusal(pin_request("c", "q", 17, 5)), HasSubstr("of the 0 that may be pinned"));
  EXPECT_EQ(engine_->pins().num_pins(), 3);
}

TEST_F(PinTableTest, APromptWithoutAFullBlockIsRefused) {
  EXPECT_THAT(refusal(pin_request("a", "p", 3, 3)), HasSubstr("3 tokens, less than one KV block"));
}

TEST_F(PinTableTest, ACancelledRequestLeavesThePinOfBefore) {
  pin(pin_request("a", "p", 17, 3));
  Request other = pin_request("a", "p", 40, 9);
  const RequestId id = other.id;
  ASSERT_TRUE(engine_->add_request(std::move(other)));
  ASSERT_TRUE(engine_->step());
  EXPECT_EQ(engine_->pins().num_blocks(), 14);
  engine_->cancel(id);
  run();
  std::vector<PinResult> results;
  engine_->pins().take_results(results);
  EXPECT_TRUE(results.empty());
  EXPECT_EQ(engine_->pins().num_blocks(), 4);
  EXPECT_EQ(engine_->pins().find("a", "p")->tokens, 16);
  // Also one that the scheduler refuses.
  EXPECT_NE(refusal(pin_request("a", "p", 100, 9)), "");
  EXPECT_EQ(engine_->pins().num_blocks(), 4);
}

TEST_F(PinTableTest, ARequestThatNeedsAllMemoryTakesTheBlocksUntilTheNextUse) {
  FakeEngineOptions options;
  options.num_blocks = 26;
  make(options);
  engine_->pins().set_share(0.5);
  pin(pin_request("a", "p", 41, 3));
  ASSERT_EQ(engine_->kv().num_pinned_blocks(), 10);
  use("b", 95, 7);
  EXPECT_LT(engine_->pins().find("a", "p")->blocks.in_memory, 10);
  use("a", 45, 3);
  EXPECT_EQ(engine_->pins().find("a", "p")->blocks.in_memory, 10);
  EXPECT_EQ(engine_->kv().num_pinned_blocks(), 10);
}

}  // namespace
}  // namespace sluice
