#include "engine/batch_inputs.h"

#include <gtest/gtest.h>

#include "device/cpu/cpu_device.h"
#include "tests/support/late_device.h"

namespace sluice {
namespace {

// Two KV groups, blocks of four tokens, three slots of up to five blocks.
class BatchInputsTest : public testing::Test {
 protected:
  BatchInputsTest() { use(*make_cpu_device({&pool_, 0, {}})); }

  void use(std::unique_ptr<Device> device) {
    inputs_.reset();
    arena_.reset();
    device_ = std::move(device);
    BatchInputsOptions options;
    options.capacity = {16, 3, 3};
    options.max_slots = 3;
    options.table_width = 5;
    options.block_size = 4;
    options.groups = {{4, 2, 8, 0, 3}, {4, 2, 8, 6, 2}};
    ArenaPlan plan;
    inputs_ = std::make_unique<BatchInputs>(options, device_->ops(), plan);
    plan.finish(device_->traits().granularity);
    arena_ = std::make_unique<Arena>(*Arena::create(*device_, std::move(plan)));
    const std::size_t bytes = arena_->plan().region(RegionKind::kInputs).reserved;
    EXPECT_TRUE(arena_->grow(RegionKind::kInputs, bytes));
    EXPECT_TRUE(inputs_->bind(*arena_, *device_));
    view_ = inputs_->decoder_inputs();
  }

  template <class T>
  static std::vector<T> read(const T* from, std::size_t count) {
    return {from, from + count};
  }

  ThreadPool pool_{1};
  std::unique_ptr<Device> device_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<BatchInputs> inputs_;
  DecoderInputs view_;
};

using Ints = std::vector<std::int32_t>;
using Slots = std::vector<std::int64_t>;

TEST_F(BatchInputsTest, APlanBecomesTheInputsOfEveryOp) {
  BatchPlan plan;
  // A decode in slot 2 at position 5, then a chunk of three in slot 0 at positions 6 to 8.
  PlanRow decode;
  decode.slot = 2;
  decode.context_len = 5;
  decode.query_len = 1;
  decode.num_logits = 1;
  PlanRow chunk;
  chunk.slot = 0;
  chunk.context_len = 6;
  chunk.query_len = 3;
  chunk.first_token = 1;
  chunk.first_logit = 1;
  chunk.num_logits = 1;
  plan.rows = {decode, chunk};
  plan.token_ids = {kTokenFromLastStep, 11, 12, 13};
  plan.logit_positions = {0, 2};
  // Slot 2 has blocks 7, 8 in group 0 and 0 (out of the window), 9 in group 1; slot 0 has 1, 2, 3
  // and 4, 5, 6.
  plan.block_ids = {7, 8, 0, 9, 1, 2, 3, 4, 5, 6};
  plan.table_updates = {{2, 0, 0, 2, 0}, {2, 1, 0, 2, 2}, {0, 0, 0, 3, 4}, {0, 1, 0, 3, 7}};
  const std::vector<TokenId> last = {0, 0, 42};
  ASSERT_TRUE(inputs_->fill(plan, last, {}));

  EXPECT_EQ(*view_.num_tokens, 4);
  EXPECT_EQ(*view_.num_seqs, 2);
  EXPECT_EQ(*view_.num_logits, 2);
  EXPECT_EQ(read(view_.token_ids, 4), (Ints{42, 11, 12, 13}));
  EXPECT_EQ(read(view_.positions, 4), (Ints{5, 6, 7, 8}));
  EXPECT_EQ(read(view_.cu_seqlens_q, 3), (Ints{0, 1, 4}));
  EXPECT_EQ(read(view_.seq_lens, 2), (Ints{6, 9}));
  EXPECT_EQ(read(view_.row_slots, 2), (Ints{2, 0}));
  EXPECT_EQ(read(view_.logit_indices, 2), (Ints{0, 3}));
  ASSERT_EQ(view_.groups.size(), 2U);
  EXPECT_EQ(read(view_.groups[0].slot_mapping, 4), (Slots{8 * 4 + 1, 2 * 4 + 2, 2 * 4 + 3, 3 * 4}));
  EXPECT_EQ(read(view_.groups[1].slot_mapping, 4), (Slots{9 * 4 + 1, 5 * 4 + 2, 5 * 4 + 3, 6 * 4}));
  EXPECT_EQ(read(view_.groups[0].block_tables + 2 * 5, 2), (Ints{7, 8}));
  EXPECT_EQ(read(view_.groups[1].block_tables + 0 * 5, 3), (Ints{4, 5, 6}));
  // Keys that the tokens see, without a window and with one of 6; in 3 layers and in 2; 4 heads.
  EXPECT_EQ(inputs_->attention_work().used, 4 * (3 * (6 + 7 + 8 + 9) + 2 * (6 + 6 + 6 + 6)));
  // On the CPU all tokens of a row are scored against what any of them sees, in whole vectors.
  EXPECT_GT(inputs_->attention_work().computed, inputs_->attention_work().used);
}

TEST_F(BatchInputsTest, NamesTokensOnTheDeviceAndListsItsSamples) {
  BatchPlan plan;
  PlanRow row;
  row.slot = 2;
  row.context_len = 1;
  row.query_len = 1;
  row.num_logits = 1;
  plan.rows = {row};
  plan.token_ids = {kTokenFromLastStep};
  plan.logit_positions = {0};
  plan.block_ids = {1, 2};
  plan.table_updates = {{2, 0, 0, 1, 0}, {2, 1, 0, 1, 1}};
  RowSampling sampling;
  sampling.uniform = 0.25;
  sampling.slot = 2;
  ASSERT_TRUE(inputs_->fill(plan, std::vector<TokenId>{0, 0, -1 - 2}, std::span(&sampling, 1)));
  EXPECT_EQ(read(view_.token_ids, 1), (Ints{-3}));
  EXPECT_EQ(view_.last_tokens, inputs_->last_tokens());
  EXPECT_EQ(inputs_->sampling()->uniform, 0.25);
  EXPECT_EQ(inputs_->sampling()->slot, 2);
}

TEST_F(BatchInputsTest, BlockTablesPersistAndOnlyChangesTravel) {
  BatchPlan plan;
  PlanRow row;
  row.slot = 1;
  row.query_len = 4;
  plan.rows = {row};
  plan.token_ids = {1, 2, 3, 4};
  plan.block_ids = {5, 6};
  plan.table_updates = {{1, 0, 0, 1, 0}, {1, 1, 0, 1, 1}};
  ASSERT_TRUE(inputs_->fill(plan, {}, {}));
  EXPECT_EQ(*view_.num_logits, 0);

  plan.clear();
  row.context_len = 4;
  row.query_len = 1;
  plan.rows = {row};
  plan.token_ids = {9};
  plan.block_ids = {7, 8};
  plan.table_updates = {{1, 0, 1, 1, 0}, {1, 1, 1, 1, 1}};
  ASSERT_TRUE(inputs_->fill(plan, {}, {}));
  EXPECT_EQ(read(view_.groups[0].block_tables + 5, 2), (Ints{5, 7}));
  EXPECT_EQ(read(view_.groups[1].block_tables + 5, 2), (Ints{6, 8}));
  EXPECT_EQ(*view_.groups[0].slot_mapping, 7 * 4);
}

TEST_F(BatchInputsTest, TableChangesAreTheInputsOwnAndMoreThanFitGoInTurns) {
  use(std::make_unique<test::LateDevice>(*make_cpu_device({&pool_, 0, {}})));
  BatchPlan plan;
  PlanRow row;
  row.slot = 1;
  row.query_len = 1;
  plan.rows = {row};
  plan.token_ids = {1};
  // The same five entries eight times, where thirty of all tables fit at once.
  for (std::int32_t turn = 1; turn <= 8; ++turn) {
    plan.table_updates.push_back({1, 0, 0, 5, static_cast<std::int32_t>(plan.block_ids.size())});
    for (std::int32_t i = 0; i < 5; ++i) plan.block_ids.push_back(10 * turn + i);
  }
  plan.table_updates.push_back({1, 1, 0, 1, 0});
  ASSERT_TRUE(inputs_->fill(plan, {}, {}));
  plan.block_ids.assign(plan.block_ids.size(), -1);
  EXPECT_EQ(*view_.groups[0].slot_mapping, 0) << "nothing of the last turn has run";
  ASSERT_TRUE(device_->synchronize());
  EXPECT_EQ(read(view_.groups[0].block_tables + 5, 5), (Ints{80, 81, 82, 83, 84}));
  EXPECT_EQ(read(view_.groups[1].block_tables + 5, 1), (Ints{10}));
  EXPECT_EQ(*view_.groups[0].slot_mapping, 80 * 4);
}

TEST_F(BatchInputsTest, MoreCopiesThanFitAreRunInTurns) {
  // Blocks of one int; block i holds i. Seven copies, where six fit at once.
  constexpr std::int32_t kBlocks = 20;
  std::vector<std::int32_t> blocks;
  for (std::int32_t i = 0; i < kBlocks; ++i) blocks.push_back(i);
  BatchPlan plan;
  for (std::int32_t i = 1; i <= 7; ++i) plan.copies.push_back({i, 10 + i});
  ASSERT_TRUE(inputs_->copy_blocks(plan, reinterpret_cast<std::byte*>(blocks.data()),
                                   sizeof(std::int32_t)));
  for (std::int32_t i = 1; i <= 7; ++i) {
    EXPECT_EQ(blocks[static_cast<std::size_t>(10 + i)], i);
    EXPECT_EQ(blocks[static_cast<std::size_t>(i)], i);
  }
  EXPECT_EQ(blocks[18], 18);
}

TEST_F(BatchInputsTest, BlocksOfAPlanWithoutRowsHaveMovedOnReturn) {
  use(std::make_unique<test::LateDevice>(std::move(device_)));
  constexpr std::int64_t kBlockBytes = 64;
  std::vector<std::byte> kv(10 * kBlockBytes, std::byte{0});
  kv[7 * kBlockBytes + 3] = std::byte{77};
  kv[8 * kBlockBytes + 3] = std::byte{88};
  BatchPlan plan;
  plan.table_updates = {{1, 0, 0, 2, 0}};
  plan.block_ids = {2, 3};
  plan.copies = {{7, 2}, {8, 3}};
  ASSERT_TRUE(inputs_->move_blocks(plan, kv.data(), kBlockBytes));
  EXPECT_EQ(kv[2 * kBlockBytes + 3], std::byte{77});
  EXPECT_EQ(kv[3 * kBlockBytes + 3], std::byte{88});
  const auto* table = view_.groups[0].block_tables;
  EXPECT_EQ(read(table + 5, 2), (Ints{2, 3}));
}

}  // namespace
}  // namespace sluice
