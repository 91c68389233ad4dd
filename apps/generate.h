// `sluice generate MODEL`: runs one prompt offline and streams the text to stdout. One thread.
#pragma once

#include <optional>
#include <string>

#include "apps/engine_arguments.h"
#include "apps/grammar_arguments.h"
#include "apps/sampling_arguments.h"

namespace sluice {

struct GenerateArguments {
  std::string model;
  std::string revision;
  std::optional<std::string> prompt;
  std::optional<std::string> prompt_ids;
  std::optional<std::string> chat;
  std::string model_name;
  bool json = false;
  EngineOptionTexts engine;
  SamplingArguments sampling;
  GrammarArguments grammar;
};

// Returns the exit code.
int run_generate(const GenerateArguments& arguments);

}  // namespace sluice
