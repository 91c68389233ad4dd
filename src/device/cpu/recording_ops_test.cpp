#include "device/cpu/recording_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "device/cpu/reference/reference_ops.h"

namespace sluice {
namespace {

// Doubles what is in `data`: a gated activation would do, but this one is easy to predict.
struct Doubling {
  explicit Doubling(std::int32_t capacity)
      : residual(static_cast<std::size_t>(capacity), 1.0F), rows(capacity) {}
  // residual += residual, one column.
  RmsNormParams params() {
    const TensorView view = matrix_view(residual.data(), DType::kF32, rows, 1);
    out.resize(residual.size());
    weight = 1.0F;
    return {view,
            view,
            vector_view(&weight, DType::kF32, 1),
            matrix_view(out.data(), DType::kF32, rows, 1),
            0.0F,
            {&count, rows}};
  }
  std::vector<float> residual;
  std::vector<float> out;
  float weight = 1.0F;
  std::int32_t rows;
  std::int32_t count = 0;
};

TEST(RecordingOps, RecordsInsteadOfRunningAndReplaysWithTheCountOfNow) {
  RecordingOps ops(std::make_unique<ReferenceOps>());
  Doubling doubling(4);
  doubling.count = 4;
  ASSERT_TRUE(ops.begin_capture());
  ops.run(doubling.params());
  ops.run(doubling.params());
  auto graph = ops.end_capture();
  ASSERT_TRUE(graph);
  EXPECT_EQ(doubling.residual[0], 1.0F) << "nothing ran";
  ASSERT_EQ(graph->size(), 2U);
  EXPECT_EQ((*graph)[0].op, RmsNormParams::kOp);
  EXPECT_EQ((*graph)[1].params.size(), sizeof(RmsNormParams));

  doubling.count = 2;
  ASSERT_TRUE(ops.replay(*graph));
  EXPECT_THAT(doubling.residual, testing::ElementsAre(4, 4, 1, 1));
  doubling.count = 3;
  ASSERT_TRUE(ops.replay(*graph));
  EXPECT_THAT(doubling.residual, testing::ElementsAre(16, 16, 4, 1));
  doubling.count = 0;
  ASSERT_TRUE(ops.replay(*graph));
  EXPECT_THAT(doubling.residual, testing::ElementsAre(16, 16, 4, 1));
}

TEST(RecordingOps, CapturesDoNotNestAndMustBeOn) {
  RecordingOps ops(std::make_unique<ReferenceOps>());
  EXPECT_FALSE(ops.end_capture());
  ASSERT_TRUE(ops.begin_capture());
  EXPECT_FALSE(ops.begin_capture());
  EXPECT_FALSE(ops.replay(OpList{})) << "not while capturing";
  ASSERT_TRUE(ops.end_capture());
  EXPECT_FALSE(ops.end_capture());
  EXPECT_TRUE(ops.replay(OpList{}));
}

}  // namespace
}  // namespace sluice
