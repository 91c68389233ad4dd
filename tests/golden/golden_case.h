// The golden models of tests/golden/models: reads a case and writes the checkpoint that its recipe
// describes. Formats: tests/golden/models/README.md. Failures throw std::runtime_error, which fails
// the test.
// Threads: any.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/token_id.h"

namespace sluice {

struct GoldenPrompt {
  std::vector<TokenId> ids;
  std::vector<std::int32_t> positions;
  std::vector<std::vector<double>> logits;  // [positions][vocabulary]
  std::vector<TokenId> greedy;
  double smallest_margin = 0;
};

struct GoldenError {
  double max = 0;
  double rms = 0;
};

struct GoldenTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  float scale = 0;
  float offset = 0;
};

struct GoldenCase {
  std::string name;
  std::string config;  // the text of config.json
  std::uint64_t seed = 0;
  std::string dtype;  // "f32", "f16" or "bf16"
  std::vector<GoldenTensor> tensors;
  std::string weights_sha256;  // absent for a case that a test changed
  std::vector<GoldenPrompt> prompts;
  std::map<std::string, GoldenError> torch_error;  // by dtype
};

// Names of the folders under `directory` (tests/golden/models), sorted.
std::vector<std::string> golden_case_names(const std::string& directory);

GoldenCase read_golden_case(const std::string& directory, const std::string& name);

// Element i is values[i]; before rounding to the case's dtype.
std::vector<float> golden_values(const GoldenTensor& tensor, std::uint64_t seed);

// Writes config.json and model.safetensors into an existing directory; checks weights_sha256.
void write_golden_checkpoint(const GoldenCase& golden, const std::string& directory);

}  // namespace sluice
