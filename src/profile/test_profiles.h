// A fictional machine for tests: a cost formula of the predictor's own form, and a profile measured
// on it with noise. Values: plain; any thread.
#pragma once

#include <vector>

#include "base/rng.h"
#include "profile/machine_profile.h"

namespace sluice::test {

// About a 1B model on a few cores: 10 ms a step, 0.5 ms a token, tiles of 16.
inline StepTimePredictor test_law() {
  StepTimePredictor law;
  law.knots[0] = {0, 10e6};
  law.knots[1] = {32, 12e6};
  law.knots[2] = {512, 120e6};
  law.num_knots = 3;
  law.tile = 16;
  law.tile_ns = 2e6;
  law.row_ns = 20e3;
  law.logits_ns = 3e6;
  law.logit_row_ns = 50e3;
  law.decode_context_ns = 1e3;
  law.chunk_work_ns = 60;
  law.chunk_context_ns = 500;
  return law;
}

inline std::vector<StepShape> test_shapes() {
  std::vector<StepShape> shapes;
  for (const int tile : {8, 16, 32, 64}) {
    for (const int multiple : {1, 3}) {
      for (const int tokens : {multiple * tile, multiple * tile + 1, (multiple + 1) * tile}) {
        shapes.push_back({0, 0, tokens, 0});
      }
    }
  }
  for (const int tokens : {1, 2, 4, 300, 512}) shapes.push_back({0, 0, tokens, 0});
  for (const int rows : {1, 2, 4, 8, 16, 32}) {
    for (const int context : {16, 500, 2000, 4000}) shapes.push_back({rows, context, 0, 0});
  }
  for (const int tokens : {16, 100, 256}) {
    for (const int context : {100, 1000, 3000}) {
      shapes.push_back({0, 0, tokens, context});
      shapes.push_back({8, 1000, tokens, context});
    }
  }
  return shapes;
}

// Times are off by up to `noise`, relative, either way; every fifth point is held out.
inline MachineProfile test_profile(double noise) {
  MachineProfile profile;
  profile.identity = {"abc123", "bf16", "cpu", "a made-up machine", 4};
  profile.model_name = "made-up";
  profile.max_num_seqs = 32;
  profile.max_model_len = 8192;
  profile.max_tokens = 512;
  profile.seconds = 12.5;
  profile.free_bytes = std::int64_t{3} << 30;
  SplitMix64 random(11);
  for (const StepShape& shape : test_shapes()) {
    const double factor = 1 + noise * (2 * random.uniform() - 1);
    profile.points.push_back({shape, test_law().time_ns(shape.features()) * factor, 1e3, 5,
                              profile.points.size() % 5 == 4});
  }
  return profile;
}

}  // namespace sluice::test
