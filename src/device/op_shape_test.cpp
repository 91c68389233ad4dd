#include "device/op_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice {
namespace {

template <class Params>
std::string shape(const Params& p, bool host_accessible = true) {
  OpList list;
  list.append(p);
  return op_shape(list[0], host_accessible);
}

template <class... Params>
std::vector<std::string> shapes_of(TypeList<Params...>) {
  return {shape(Params{}, false)...};
}

TEST(OpShape, EveryOpHasOne) {
  EXPECT_THAT(shapes_of(OpTypes{}), testing::Each(testing::Not(testing::IsEmpty())));
}

TEST(OpShape, ProductsCountTheRowsInUseWhereTheHostCanReadThem) {
  const std::int32_t used = 5;
  MatmulParams p;
  p.x = matrix_view(nullptr, DType::kBF16, 8, 2048);
  p.segments[0].weight = matrix_view(nullptr, DType::kBF16, 4096, 2048);
  p.segments[1].weight = matrix_view(nullptr, DType::kBF16, 512, 2048);
  p.num_segments = 2;
  p.rows = {&used, 8};
  EXPECT_EQ(shape(p), "5 x 2048 by 4608 bf16");
  EXPECT_EQ(shape(p, false), "8 x 2048 by 4608 bf16");
}

TEST(OpShape, AttentionSumsQueriesAndKeys) {
  const std::int32_t cu_seqlens[] = {0, 1, 33};
  const std::int32_t seq_lens[] = {100, 32};
  const std::int32_t seqs = 2;
  AttentionParams p;
  p.cu_seqlens_q = cu_seqlens;
  p.seq_lens = seq_lens;
  p.seqs = {&seqs, 4};
  p.num_heads = 32;
  p.num_kv_heads = 8;
  p.head_dim = 64;
  p.kv.dtype = DType::kBF16;
  EXPECT_EQ(shape(p), "2 rows, 33 queries, 132 keys, 32/8 heads x 64 bf16");
  EXPECT_EQ(shape(p, false), "4 rows, 32/8 heads x 64 bf16");
}

}  // namespace
}  // namespace sluice
