// adapter_config.json of a LoRA adapter in PEFT's format: which modules the adapter changes, with
// which rank and scale. Patterns match as in PEFT. Everything that would change the result and is
// not built is refused by its name, and so is every unknown field that is set.
// Limits: 4 MiB, 1,024 patterns, ranks up to LoraTable::kMaxRank.
// Errors name the field as "adapter_config.json: field". Values: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapter/module_pattern.h"
#include "base/result.h"

namespace sluice {

// PEFT's `target_modules` or `exclude_modules`.
struct ModuleSet {
  bool all_linear = false;
  std::optional<ModulePattern> pattern;
  std::vector<std::string> suffixes;  // a module's whole name, or its end after a dot
};

// An entry of `rank_pattern` or `alpha_pattern`: the first match wins.
struct PatternValue {
  ModulePattern pattern;
  double value = 0;
};

// An adapter's part in one module.
struct ModuleLora {
  std::int32_t rank = 0;
  float scale = 0.0F;
};

class AdapterConfig {
 public:
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{4} << 20;
  static Result<AdapterConfig> parse(std::string_view json);

  // Nothing if the adapter leaves the module alone. `module`: as "model.layers.0.mlp.up_proj", a
  // linear module of a decoder layer.
  Result<std::optional<ModuleLora>> find(std::string_view module) const;
  // Whether modules have trained magnitudes (DoRA).
  bool has_magnitudes() const { return magnitudes_; }
  // Whether the configuration names a module outside of the layers: the embedding or the head.
  Result<bool> targets_outside_layers(std::string_view module) const;

 private:
  AdapterConfig() = default;
  Result<bool> is_target(std::string_view module, bool in_layers) const;
  bool is_layer_wanted(std::string_view module) const;

  std::int32_t rank_ = 0;
  double alpha_ = 0;
  bool rank_stabilized_ = false;
  bool magnitudes_ = false;
  ModuleSet targets_;
  ModuleSet excluded_;
  std::optional<std::vector<std::int64_t>> layers_;  // `layers_to_transform`
  std::vector<PatternValue> rank_patterns_;
  std::vector<PatternValue> alpha_patterns_;
};

}  // namespace sluice
