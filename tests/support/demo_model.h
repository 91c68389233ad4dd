// The demo model as a server loads it, for tests of what lies between text and tokens: its real
// tokenizer and chat template, with a context of any length and without an engine.
#pragma once

#include <cstdint>
#include <utility>

#include "base/check.h"
#include "front/served_model.h"

namespace sluice::test {

inline ServedModel load_demo_model(std::int32_t max_model_len) {
  EngineFacts facts;
  facts.limits = {.vocab_size = 4096, .max_model_len = max_model_len, .num_adapters = 0};
  facts.block_size = 16;
  facts.kv_identity.block_size = 16;
  auto loaded = load_served_model("models/demo", "demo", 1, std::move(facts));
  CHECK(loaded.has_value());
  return *std::move(loaded);
}

}  // namespace sluice::test
