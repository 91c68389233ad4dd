#include "scheduler/step_time_predictor.h"

#include <gtest/gtest.h>

#include "tests/support/predictor_curve.h"

namespace sluice {
namespace {

StepTimePredictor predictor() {
  StepTimePredictor p = predictor_of_curve({{0, 1000}, {64, 2000}, {256, 10000}});
  p.tile = 32;
  p.tile_ns = 100;
  p.chunk_token_ns = 1;
  p.row_ns = 5;
  p.logits_ns = 500;
  p.logit_row_ns = 50;
  p.decode_context_ns = 2;
  p.chunk_work_ns = 0.25;
  p.chunk_context_ns = 3;
  return p;
}

TEST(StepTimePredictorTest, SumsItsTerms) {
  StepFeatures f;
  EXPECT_EQ(predictor().time_ns(f), 0);
  f.add_decode(100);
  // Curve 1000 + 1000 / 64, one tile, a row, the logits and one row of them, the context.
  EXPECT_DOUBLE_EQ(predictor().time_ns(f), 1015.625 + 100 + 5 + 500 + 50 + 200);
  f.add_chunk(10, 64, false);
  EXPECT_EQ(f.tokens, 65);
  const double curve = 2000 + 8000.0 / 192;
  EXPECT_DOUBLE_EQ(predictor().linear_ns(f), curve + 300 + 64 + 10 + 500 + 50);
  EXPECT_DOUBLE_EQ(predictor().attention_ns(f), 200 + 0.25 * 64 * 42 + 30);
}

BatchPlan step_of(std::int32_t context, std::int32_t count, std::int32_t num_logits) {
  BatchPlan plan;
  PlanRow& row = plan.rows.emplace_back();
  row.context_len = context;
  row.query_len = count;
  row.num_logits = num_logits;
  return plan;
}

TEST(StepTimePredictorTest, ALoneLastTokenOfAPromptIsADecode) {
  EXPECT_EQ(step_features(step_of(50, 1, 1)).decode_context, 50);
  EXPECT_EQ(step_features(step_of(50, 1, 0)).chunk_context, 50);
  EXPECT_EQ(step_features(step_of(5000, 1, 1), 4096).decode_context, 4096);
  EXPECT_EQ(step_features(step_of(5000, 10, 0), 4096).chunk_context, 4096);
}

TEST(StepTimePredictorTest, TheLastSlopeGoesOn) {
  StepTimePredictor p = predictor();
  p.tile_ns = 0;
  p.chunk_work_ns = 0;
  StepFeatures f;
  f.add_chunk(0, 448, false);
  EXPECT_DOUBLE_EQ(p.time_ns(f), 10000 + 8000 + 448 + 5);
}

TEST(StepTimePredictorTest, ATileIsFreeToFillAndCostsWhenExceeded) {
  const StepTimePredictor p = predictor();
  StepFeatures full;
  full.add_chunk(0, 32, false);
  StepFeatures over;
  over.add_chunk(0, 33, false);
  StepFeatures less;
  less.add_chunk(0, 31, false);
  EXPECT_GT(p.time_ns(over) - p.time_ns(full), 100);
  EXPECT_LT(p.time_ns(full) - p.time_ns(less), 100);
}

TEST(StepTimePredictorTest, AWindowBoundsWhatIsSeen) {
  StepTimePredictor p = predictor();
  p.window = 128;
  StepFeatures near;
  near.add_decode(128, p.window);
  StepFeatures far;
  far.add_decode(5000, p.window);
  EXPECT_EQ(p.time_ns(near), p.time_ns(far));
  EXPECT_EQ(p.with_chunk_ns({}, 1000, 16, false), p.with_chunk_ns({}, 9000, 16, false));
}

TEST(StepTimePredictorTest, TheLargestChunkFitsAndOneMoreDoesNot) {
  const StepTimePredictor p = predictor();
  for (const std::int32_t context : {0, 100, 3000}) {
    StepFeatures f;
    f.add_decode(500);
    f.add_decode(20);
    for (double limit = 1000; limit < 60000; limit *= 1.1) {
      const std::int32_t chunk = p.largest_chunk(f, context, 300, false, limit);
      ASSERT_LE(chunk, 300);
      if (chunk > 0) {
        EXPECT_LE(p.with_chunk_ns(f, context, chunk, false), limit);
      }
      if (chunk < 300) {
        EXPECT_GT(p.with_chunk_ns(f, context, chunk + 1, false), limit);
      }
    }
  }
  EXPECT_EQ(p.largest_chunk({}, 0, 0, false, 1e9), 0);
}

TEST(StepTimePredictorTest, LaterChunksOfAPromptAreShorter) {
  const StepTimePredictor p = predictor();
  StepFeatures f;
  f.add_decode(500);
  const std::int32_t first = p.largest_chunk(f, 0, 300, false, 12000);
  const std::int32_t late = p.largest_chunk(f, 2000, 300, false, 12000);
  EXPECT_GT(first, late);
  EXPECT_GT(late, 0);
}

// The search gives up the logits of a prompt's end when only then it fits.
TEST(StepTimePredictorTest, APromptsEndCostsItsLogits) {
  const StepTimePredictor p = predictor();
  const double without = p.with_chunk_ns({}, 0, 64, false);
  EXPECT_EQ(p.largest_chunk({}, 0, 64, false, without), 64);
  EXPECT_EQ(p.largest_chunk({}, 0, 64, true, without), 63);
}

}  // namespace
}  // namespace sluice
