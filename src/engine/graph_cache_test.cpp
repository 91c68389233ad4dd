#include "engine/graph_cache.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "device/cpu/cpu_device.h"

namespace sluice {
namespace {

constexpr StepCapacity kLargest{100, 8, 8};

// A forward of one op that notes the capacities it was called with.
class GraphCacheTest : public testing::Test {
 protected:
  GraphCacheTest() : device_(*make_cpu_device({&pool_, 0, {}})) {}

  // out[0] = table[0], so each run copies `source_` to `target_`.
  void run(GraphCache& cache, std::int32_t tokens,
           ForwardVariant variant = ForwardVariant::kPlain) {
    const auto status = cache.run(*device_, tokens, variant,
                                  [&](const StepCapacity& capacity) { forward(capacity); });
    ASSERT_TRUE(status) << status.error().message;
  }

  void forward(const StepCapacity& capacity) {
    forwards_.push_back(capacity);
    EmbedParams params;
    params.table = matrix_view(&source_, DType::kF32, 1, 1);
    params.token_ids = &token_;
    params.out = matrix_view(&target_, DType::kF32, 1, 1);
    params.rows.capacity = 1;
    device_->ops().run(params);
    multiply(capacity.tokens);
  }

  // As many products as the capacity, so that forwards can be told apart.
  void multiply(std::int32_t products) {
    MatmulParams params;
    params.x = params.segments[0].weight = matrix_view(&source_, DType::kF32, 1, 1);
    params.num_segments = 1;
    params.out = matrix_view(&product_, DType::kF32, 1, 1);
    params.rows = {&rows_, 1};
    for (std::int32_t i = 0; i < products; ++i) device_->ops().run(params);
  }

  ThreadPool pool_{1};
  std::unique_ptr<Device> device_;
  float source_ = 0;
  float target_ = 0;
  float product_ = 0;
  std::int32_t token_ = 0;
  std::int32_t rows_ = 1;
  std::vector<StepCapacity> forwards_;
};

TEST_F(GraphCacheTest, CapturesEachCapacityOnceAndReplaysIt) {
  GraphCache cache(GraphMode::kReplay, kLargest);
  EXPECT_EQ(std::vector<std::int32_t>(cache.capacities().begin(), cache.capacities().end()),
            (std::vector<std::int32_t>{1, 2, 4, 8, 16, 32, 64, 100}));
  for (const std::int32_t tokens : {1, 3, 4, 3, 1, 65, 100, 64}) {
    source_ += 1;
    run(cache, tokens);
    EXPECT_EQ(target_, source_) << tokens;  // the graph ran, capturing alone runs nothing
  }
  ASSERT_EQ(forwards_.size(), 4U);  // 1, 4, 100, 64
  EXPECT_EQ(cache.num_captured(), 4);
  EXPECT_EQ(forwards_[0].tokens, 1);
  EXPECT_EQ(forwards_[0].seqs, 1);
  EXPECT_EQ(forwards_[1].tokens, 4);
  EXPECT_EQ(forwards_[1].logits, 4);
  EXPECT_EQ(forwards_[2].tokens, 100);
  EXPECT_EQ(forwards_[2].seqs, 8);
}

TEST_F(GraphCacheTest, RestoresListsThatEqualItsOwnAndNamesTheFirstThatDoesNot) {
  const auto forward_of = [&](const StepCapacity& capacity) { forward(capacity); };
  GraphCache first(GraphMode::kReplay, kLargest);
  ASSERT_TRUE(first.capture_all(*device_, ForwardVariant::kPlain, forward_of));
  std::vector<OpList> stored;
  for (const OpList* list : first.lists(ForwardVariant::kPlain)) stored.push_back(*list);

  const auto restore = [&](const std::vector<OpList>& lists) {
    GraphCache second(GraphMode::kReplay, kLargest);
    const auto difference = second.restore_all(*device_, ForwardVariant::kPlain, lists, forward_of);
    EXPECT_TRUE(difference) << difference.error().message;
    EXPECT_EQ(second.num_captured(), 8) << "all graphs are there either way";
    source_ += 1;
    run(second, 3);
    EXPECT_EQ(target_, source_);
    return *difference;
  };
  EXPECT_EQ(restore(stored), "");
  // Every word of a pointer or an extent counts.
  std::vector<OpList> changed = stored;
  changed[2].params(0)[offsetof(EmbedParams, token_ids)] ^= std::byte{4};
  EXPECT_EQ(restore(changed).rfind("capacity 4: op 0 (embed): token_ids is ", 0), 0U);
  stored.pop_back();
  EXPECT_EQ(restore(stored), "7 lists of ops, expected 8");
}

TEST_F(GraphCacheTest, CapturesAllCapacitiesBeforeAnyStep) {
  GraphCache cache(GraphMode::kReplay, kLargest);
  run(cache, 4);
  target_ = -1;
  ASSERT_TRUE(cache.capture_all(*device_, ForwardVariant::kPlain,
                                [&](const StepCapacity& capacity) { forward(capacity); }));
  EXPECT_EQ(target_, -1) << "capturing runs nothing";
  EXPECT_EQ(cache.num_captured(), 8);
  EXPECT_EQ(forwards_.size(), 8U) << "the graph that was there is kept";
  for (const std::int32_t tokens : {1, 3, 7, 16, 31, 64, 100}) {
    source_ += 1;
    run(cache, tokens);
    EXPECT_EQ(target_, source_) << tokens;
  }
  EXPECT_EQ(forwards_.size(), 8U) << "no step captures";
  EXPECT_EQ(cache.products(31, ForwardVariant::kPlain).work(&rows_, 1).used, 32);
}

TEST_F(GraphCacheTest, EagerModeCapturesNothing) {
  GraphCache cache(GraphMode::kEager, kLargest);
  ASSERT_TRUE(cache.capture_all(*device_, ForwardVariant::kPlain,
                                [&](const StepCapacity& capacity) { forward(capacity); }));
  EXPECT_TRUE(forwards_.empty());
}

TEST_F(GraphCacheTest, KeepsVariantsApart) {
  GraphCache cache(GraphMode::kReplay, kLargest);
  run(cache, 4, ForwardVariant::kPlain);
  EXPECT_EQ(cache.graph(4, ForwardVariant::kAdapters), nullptr);
  run(cache, 3, ForwardVariant::kAdapters);
  EXPECT_EQ(cache.num_captured(), 2);
  ASSERT_NE(cache.graph(4, ForwardVariant::kAdapters), nullptr);
  EXPECT_NE(cache.graph(4, ForwardVariant::kAdapters), cache.graph(4, ForwardVariant::kPlain));
  run(cache, 4, ForwardVariant::kPlain);
  EXPECT_EQ(forwards_.size(), 2U);
}

TEST_F(GraphCacheTest, EagerRunsTheForwardEachTime) {
  GraphCache cache(GraphMode::kEager, kLargest);
  for (int i = 0; i < 3; ++i) {
    source_ += 1;
    run(cache, 5);
    EXPECT_EQ(target_, source_);
  }
  EXPECT_EQ(forwards_.size(), 3U);
  EXPECT_EQ(forwards_[0].tokens, 8);  // as a graph would have
  EXPECT_EQ(cache.num_captured(), 0);
}

TEST_F(GraphCacheTest, KnowsTheProductsOfEachForward) {
  for (const GraphMode mode : {GraphMode::kReplay, GraphMode::kEager}) {
    GraphCache cache(mode, kLargest);
    for (const std::int32_t tokens : {3, 60, 4, 1, 60}) run(cache, tokens);
    EXPECT_EQ(cache.products(3, ForwardVariant::kPlain).work(&rows_, 1).used, 4);
    EXPECT_EQ(cache.products(1, ForwardVariant::kPlain).work(&rows_, 1).used, 1);
    EXPECT_EQ(cache.products(64, ForwardVariant::kPlain).work(&rows_, 1).used, 64);
    EXPECT_EQ(cache.products(100, ForwardVariant::kPlain).work(&rows_, 1).used, 0)
        << "none has run";
  }
}

}  // namespace
}  // namespace sluice
