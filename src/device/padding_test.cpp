#include "device/padding.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace sluice {
namespace {

// As attention defines it: query by query.
std::int64_t counted(const AttentionPlanParams& p) {
  std::int64_t pairs = 0;
  for (std::int32_t row = 0; row < p.num_seqs; ++row) {
    const std::int32_t queries = p.cu_seqlens_q[row + 1] - p.cu_seqlens_q[row];
    for (std::int32_t i = 0; i < queries; ++i) {
      const std::int32_t position = p.seq_lens[row] - queries + i;
      const std::int32_t window = p.limits.window > 0 ? p.limits.window : position + 1;
      pairs += std::min(window, position + 1);
    }
  }
  return pairs * p.limits.num_heads;
}

TEST(PaddingTest, AttentionNeedsThePairsThatItsDefinitionNames) {
  // A decode, a whole prompt, a chunk, a prompt of one token.
  const std::int32_t first_tokens[] = {0, 1, 41, 48, 49};
  const std::int32_t lengths[] = {100, 40, 67, 1};
  for (const std::int32_t window : {0, 1, 7, 39, 40, 41, 64, 66, 67, 1000}) {
    AttentionPlanParams p;
    p.limits.num_heads = 6;
    p.limits.window = window;
    p.cu_seqlens_q = first_tokens;
    p.seq_lens = lengths;
    p.num_seqs = 4;
    EXPECT_EQ(attention_pairs(p), counted(p)) << "window " << window;
  }
}

TEST(PaddingTest, RowsOfProductsAreRoundedUpByTheKindOfProduct) {
  std::int32_t tokens = 0;
  std::int32_t logits = 0;
  ProductRows products;
  for (int layer = 0; layer < 3; ++layer) {
    products.add({&tokens, 256}, 32);
    products.add({&tokens, 256}, 256);
  }
  products.add({&logits, 64}, 8);
  EXPECT_EQ(products.work(&tokens, 70), (Work{6 * 70, 3 * 96 + 3 * 256}));
  EXPECT_EQ(products.work(&tokens, 256), (Work{6 * 256, 6 * 256}));
  EXPECT_EQ(products.work(&logits, 9), (Work{9, 16}));
  EXPECT_EQ(products.work(&logits, 0), (Work{0, 0}));
  products.clear();
  EXPECT_EQ(products.work(&tokens, 70), Work{});
}

}  // namespace
}  // namespace sluice
