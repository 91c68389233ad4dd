// Tokens and all logits of two requests that share steps, to compare engines bit by bit.
// Threads: the engine's.
#pragma once

#include <span>
#include <vector>

#include "tests/support/engine_fixture.h"

namespace sluice::test {

struct ComputedLogits {
  std::vector<TokenId> tokens;
  std::vector<std::vector<float>> logits;
  friend bool operator==(const ComputedLogits&, const ComputedLogits&) = default;
};

// 15 tokens. The host samples them, so that it sees logits on every device.
inline ComputedLogits compute_logits(EngineFixture& engine) {
  ComputedLogits computed;
  engine.loaded().logits->watch_logits(
      [&](std::span<const float> row) { computed.logits.emplace_back(row.begin(), row.end()); });
  for (Request request : {greedy_request(1, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 6),
                          greedy_request(2, {9, 8, 7}, 9)}) {
    request.sampling.logprobs = 0;
    engine.add(std::move(request));
  }
  for (const auto& [choice, result] : engine.run_to_end()) {
    computed.tokens.insert(computed.tokens.end(), result.tokens.begin(), result.tokens.end());
  }
  engine.loaded().logits->watch_logits({});
  return computed;
}

}  // namespace sluice::test
