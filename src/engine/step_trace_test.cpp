#include "engine/step_trace.h"

#include <gtest/gtest.h>

#include <string>

#include "device/cpu/cpu_device.h"

namespace sluice {
namespace {

// A clock that advances by a microsecond with each reading.
class StepClock final : public Clock {
 public:
  TimePoint now() const override { return {Duration(1000 * ++readings_)}; }

 private:
  mutable std::int64_t readings_ = 0;
};

class StepTraceTest : public testing::Test {
 protected:
  void SetUp() override {
    auto device = make_cpu_device({.threads = 1});
    ASSERT_TRUE(device) << device.error().message;
    device_ = std::move(*device);
  }

  // Gathers of 2 rows, which show whether they ran.
  OpList gathers(int count) {
    OpList list;
    for (int i = 0; i < count; ++i) {
      list.append(GatherRowsParams{matrix_view(in_, DType::kF32, 2, 2),
                                   indices_,
                                   matrix_view(out_, DType::kF32, 2, 2),
                                   {nullptr, 2}});
    }
    return list;
  }

  float in_[4] = {1, 2, 3, 4};
  float out_[4] = {};
  const std::int32_t indices_[2] = {1, 0};
  StepClock clock_;
  StepTrace trace_{clock_};
  std::unique_ptr<Device> device_;
};

TEST_F(StepTraceTest, RunsEachOpAndNotesItsTime) {
  trace_.run(gathers(3), device_->ops(), 7, 2, true);
  EXPECT_EQ(out_[0], 3);
  EXPECT_EQ(out_[3], 2);
  ASSERT_TRUE(trace_.prompt_step());
  EXPECT_FALSE(trace_.decode_step());
  const TracedStep& step = *trace_.prompt_step();
  EXPECT_EQ(step.tokens, 7);
  EXPECT_EQ(step.seqs, 2);
  ASSERT_EQ(step.ops.size(), 3U);
  EXPECT_EQ(step.length, Duration(3000));
  for (std::size_t i = 0; i < step.ops.size(); ++i) {
    EXPECT_STREQ(step.ops[i].name, "gather_rows");
    EXPECT_EQ(step.ops[i].shape, "2 x 2");
    EXPECT_EQ(step.ops[i].begin, step.begin + Duration(1000 * static_cast<int>(i)));
    EXPECT_EQ(step.ops[i].length, Duration(1000));
  }
}

TEST_F(StepTraceTest, KeepsTheLargestStepOfEachKindAndOfEqualsTheLatest) {
  trace_.run(gathers(1), device_->ops(), 4, 4, false);
  trace_.run(gathers(2), device_->ops(), 4, 4, false);
  trace_.run(gathers(3), device_->ops(), 3, 3, false);
  trace_.run(gathers(4), device_->ops(), 2, 1, true);
  ASSERT_TRUE(trace_.decode_step() && trace_.prompt_step());
  EXPECT_EQ(trace_.decode_step()->ops.size(), 2U);
  EXPECT_EQ(trace_.prompt_step()->ops.size(), 4U);
}

TEST_F(StepTraceTest, IsAnEmptyTraceWithoutSteps) {
  EXPECT_EQ(trace_.json(), "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n\n]}\n");
}

}  // namespace
}  // namespace sluice
