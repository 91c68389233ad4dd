#include "device/op_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "device/op_fields.h"

namespace sluice {
namespace {

template <class Test, class... Params>
void for_each_op(TypeList<Params...>, Test test) {
  (test(Params{}), ...);
}

// An op whose every byte, padding included, is `byte`.
template <class Params>
std::vector<std::byte> filled(std::uint8_t byte) {
  return std::vector<std::byte>(sizeof(Params), std::byte{byte});
}

TEST(OpFields, AreNamedApartAndInOrderAndCoverTheStructButForPadding) {
  for_each_op(OpTypes{}, []<class Params>(const Params&) {
    SCOPED_TRACE(Params::kName);
    std::size_t end = 0;
    std::vector<std::string> names;
    for (const OpField& field : op_fields(Params::kOp)) {
      names.push_back(field.name);
      // Every type here is aligned to its size: only padding fits between.
      EXPECT_EQ(field.offset % field.bytes, 0U) << field.name;
      EXPECT_GE(field.offset, end) << field.name;
      EXPECT_LT(field.offset - end, 8U) << field.name;
      end = field.offset + field.bytes;
    }
    EXPECT_LT(sizeof(Params) - end, alignof(Params));
    std::sort(names.begin(), names.end());
    EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  });
  EXPECT_TRUE(op_fields(OpId{999}).empty());
}

TEST(OpFields, NameEveryPointerOfAMatmul) {
  std::vector<std::string> pointers;
  for (const OpField& field : op_fields(MatmulParams::kOp)) {
    EXPECT_EQ(field.kind == FieldKind::kPointer, field.type == FieldType::kAddress);
    if (field.kind == FieldKind::kPointer) pointers.push_back(field.name);
  }
  EXPECT_THAT(pointers, testing::ElementsAre("x.data", "segments[0].weight.data",
                                             "segments[0].bias.data", "segments[0].scales.values",
                                             "segments[0].order", "segments[1].weight.data",
                                             "segments[1].bias.data", "segments[1].scales.values",
                                             "segments[1].order", "segments[2].weight.data",
                                             "segments[2].bias.data", "segments[2].scales.values",
                                             "segments[2].order", "out.data", "rows.value"));
}

// Each byte of a field changes equality and hash, and no byte of padding does.
TEST(OpList, ComparesFieldsAndNotPadding) {
  for_each_op(OpTypes{}, []<class Params>(const Params&) {
    SCOPED_TRACE(Params::kName);
    std::vector<bool> in_field(sizeof(Params), false);
    for (const OpField& field : op_fields(Params::kOp)) {
      std::fill_n(in_field.begin() + static_cast<std::ptrdiff_t>(field.offset), field.bytes, true);
    }
    OpList list;
    ASSERT_TRUE(list.append_bytes(Params::kOp, filled<Params>(0x55)));
    for (std::size_t i = 0; i < sizeof(Params); ++i) {
      std::vector<std::byte> bytes = filled<Params>(0x55);
      bytes[i] = std::byte{0x56};
      OpList other;
      ASSERT_TRUE(other.append_bytes(Params::kOp, bytes));
      EXPECT_EQ(list == other, !in_field[i]) << "byte " << i;
      EXPECT_EQ(list.hash() == other.hash(), !in_field[i]) << "byte " << i;
      EXPECT_EQ(first_difference(other, list).empty(), !in_field[i]) << "byte " << i;
    }
  });
}

TEST(OpList, KeepsPaddingZero) {
  // Objects made in dirty memory have dirty padding.
  alignas(EmbedParams) std::byte memory[sizeof(EmbedParams)];
  std::memset(memory, 0xAB, sizeof(memory));
  const auto* params = new (memory) EmbedParams;
  OpList dirty;
  dirty.append(*params);
  OpList clean;
  clean.append(EmbedParams{});
  EXPECT_TRUE(std::ranges::equal(dirty[0].params, clean[0].params));
}

TEST(OpList, EqualityNeedsTheSameOpsInOrder) {
  OpList one;
  one.append(RmsNormParams{});
  OpList two = one;
  EXPECT_EQ(one, two);
  two.append(RmsNormParams{});
  EXPECT_FALSE(one == two);
  EXPECT_EQ(first_difference(one, two), "1 ops, expected 2");
  OpList other;
  other.append(LayerNormParams{});
  EXPECT_FALSE(one == other);
  EXPECT_EQ(first_difference(one, other), "op 0 is rms_norm, expected layer_norm");
}

TEST(OpList, NamesTheFieldThatDiffers) {
  OpList one;
  MatmulParams p;
  p.num_segments = 2;
  p.segments[1].weight.dims[0] = 4;
  one.append(p);
  OpList two;
  p.segments[1].weight.dims[0] = 8;
  two.append(p);
  EXPECT_EQ(first_difference(one, two),
            "op 0 (matmul): segments[1].weight.dims[0] is 4, expected 8");
}

TEST(OpList, PrintsFieldsThatAreNotZero) {
  RmsNormParams p;
  p.residual = matrix_view(reinterpret_cast<void*>(0x1000), DType::kBF16, 3, 4);
  p.epsilon = 0.5F;
  OpList list;
  list.append(p);
  EXPECT_EQ(to_string(list[0]),
            "rms_norm residual.data=0x1000 residual.dtype=2 residual.rank=2 residual.dims[0]=3 "
            "residual.dims[1]=4 residual.strides[0]=4 residual.strides[1]=1 epsilon=0.5");
}

TEST(OpList, RefusesWhatIsNoOp) {
  OpList list;
  const std::vector<std::byte> bytes(sizeof(RmsNormParams));
  ASSERT_TRUE(list.append_bytes(RmsNormParams::kOp, bytes));
  const auto unknown = list.append_bytes(OpId{999}, bytes);
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, testing::HasSubstr("op 1 of a list has id 999"));
  EXPECT_FALSE(list.append_bytes(OpId{0}, {}));
  EXPECT_FALSE(list.append_bytes(MatmulParams::kOp, bytes)) << "too few bytes";
  EXPECT_FALSE(list.append_bytes(EmbedParams::kOp, bytes)) << "too many bytes";
  EXPECT_EQ(list.size(), 1U);
}

// Notes the calls it gets.
class NotingOps final : public OpsBase<NotingOps> {
 public:
  template <class Params>
  void execute(const Params& p) {
    calls.append(p);
  }
  AttentionPlanSize attention_plan_size(const AttentionPlanLimits&) const override { return {}; }
  std::int64_t plan_attention(const AttentionPlanParams&) override { return 0; }
  Work attention_work(const AttentionPlanParams&) const override { return {}; }
  OpList calls;
};

TEST(OpList, CallsEveryOpWithItsParameters) {
  OpList list;
  for_each_op(OpTypes{}, [&]<class Params>(const Params&) {
    std::uint8_t byte = static_cast<std::uint8_t>(Params::kOp);
    ASSERT_TRUE(list.append_bytes(Params::kOp, filled<Params>(byte)));
  });
  ASSERT_EQ(list.size(), kNumOps);
  NotingOps ops;
  list.run(ops);
  EXPECT_EQ(first_difference(ops.calls, list), "");
}

// Ids are in snapshot files: they never change.
TEST(OpTypes, HaveStableIds) {
  EXPECT_EQ(EmbedParams::kOp, OpId{1});
  EXPECT_EQ(RmsNormParams::kOp, OpId{2});
  EXPECT_EQ(MatmulParams::kOp, OpId{3});
  EXPECT_EQ(RopeWriteKvParams::kOp, OpId{4});
  EXPECT_EQ(AttentionParams::kOp, OpId{5});
  EXPECT_EQ(GatedActivationParams::kOp, OpId{6});
  EXPECT_EQ(GatherRowsParams::kOp, OpId{7});
  EXPECT_EQ(AllReduceParams::kOp, OpId{8});
  EXPECT_EQ(CopyBlocksParams::kOp, OpId{9});
  EXPECT_EQ(SampleParams::kOp, OpId{10});
  EXPECT_EQ(GatedMatmulParams::kOp, OpId{11});
  EXPECT_EQ(LoraShrinkParams::kOp, OpId{12});
  EXPECT_EQ(LoraExpandParams::kOp, OpId{13});
  EXPECT_EQ(LayerNormParams::kOp, OpId{14});
}

}  // namespace
}  // namespace sluice
