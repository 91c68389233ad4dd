// `sluice snapshot verify`: two starts of one model in this process, without and with a snapshot
// file, and a comparison of tokens and of whole rows of logits: of a short prompt, and of a turn
// behind each warm prompt that the file has. One thread.
#pragma once

#include <string>

#include "base/result.h"
#include "engine/engine_options.h"

namespace sluice {

struct VerifyArguments {
  std::string file;
  std::string model;
  bool json = false;
};

// kExitSuccess, or kExitError for a difference or a damaged file.
Result<int> verify_snapshot(const VerifyArguments& arguments, const EngineOptions& options);

}  // namespace sluice
