// Runs golden models through a whole engine and compares greedy tokens with transformers.
// Threads: the engine's.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>

#include "tests/golden/golden_case.h"
#include "tests/support/engine_fixture.h"

namespace sluice::test {

// Runs all prompts of the case together.
inline void expect_greedy_tokens(EngineFixture& fixture, const GoldenCase& golden) {
  for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
    const GoldenPrompt& prompt = golden.prompts[i];
    fixture.add(greedy_request(i, prompt.ids, static_cast<std::int32_t>(prompt.greedy.size())));
  }
  const Results results = fixture.run_to_end();
  for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
    EXPECT_EQ(results.at({i, 0}).tokens, golden.prompts[i].greedy) << "prompt " << i;
  }
}

}  // namespace sluice::test
