// LoRA's kernels given invalid state, which only a bug of ours can make: they trap, which fails the
// engine, and do not use that state.
#include <gtest/gtest.h>

#include <vector>

#include "device/cuda/lora_launch.h"
#include "tests/support/cuda/run_emulated.h"

namespace sluice::cuda {
namespace {

struct LoraMemory {
  alignas(64) float adapters[64] = {};  // A: 2 ranks by 16, at 0; B: 2 ranks by 8, at 128 bytes
  float x[4 * 16] = {};
  float h[4 * 4] = {};
  float out[4 * 8] = {};
  LoraEntry entries[2] = {{0, 128, 2, 1.0F}, {1, 1, -1, 0.0F}};
  std::int32_t tokens[4] = {0, 3, 1, 2};
  LoraSegment segments[1] = {{0, 2, 0}};
  LoraShrinkParams shrink;
  LoraExpandParams expand;

  LoraMemory() {
    shrink.x = matrix_view(x, DType::kF32, 4, 16);
    shrink.table = {adapters, entries, 1, 2, 1, 4, DType::kF32};
    shrink.batch = {tokens, segments, {nullptr, 1}};
    shrink.h = {h, 1, 4};
    expand.h = shrink.h;
    expand.table = shrink.table;
    expand.batch = shrink.batch;
    expand.out = matrix_view(out, DType::kF32, 4, 8);
    expand.widths[0] = 8;
  }
};

template <class Params>
bool lora_runs(const Params& p) {
  const auto launch = plan_launch(p);
  EXPECT_TRUE(launch);
  return launch && run_emulated(launch->kernel, launch->shape, &p);
}

TEST(RunEmulatedLora, WrongSegmentsAndEntriesTrap) {
  LoraMemory memory;
  EXPECT_TRUE(lora_runs(memory.shrink));
  EXPECT_TRUE(lora_runs(memory.expand));
  const auto expect_traps = [&](const char* what) {
    EXPECT_FALSE(lora_runs(memory.shrink)) << what;
    EXPECT_FALSE(lora_runs(memory.expand)) << what;
  };
  for (const LoraSegment& segment :
       {LoraSegment{0, 2, 2}, LoraSegment{0, 2, -1}, LoraSegment{0, 0, 0}, LoraSegment{0, 65, 0},
        LoraSegment{3, 2, 0}, LoraSegment{-1, 1, 0}}) {
    memory.segments[0] = segment;
    expect_traps("a segment");
  }
  memory.segments[0] = {0, 1, 1};
  expect_traps("a slot that holds nothing");
  memory.segments[0] = {0, 2, 0};
  memory.tokens[1] = 4;
  expect_traps("a token that does not exist");
  memory.tokens[1] = 3;
  memory.entries[0].rank = 5;
  expect_traps("a rank that is too large");
  memory.entries[0].rank = 2;
  memory.entries[0].a = 32;
  expect_traps("an offset that is no multiple of 64");
  memory.entries[0].a = 0;
  memory.entries[0].gain = 32;
  expect_traps("gains at an offset that is no multiple of 64");
  memory.entries[0].gain = LoraEntry::kNoGain;
  EXPECT_TRUE(lora_runs(memory.shrink));
}

}  // namespace
}  // namespace sluice::cuda
