// `sluice tokenize MODEL`: converts text on stdin, or a chat in a file, to token ids on stdout. One
// thread.
#pragma once

#include <optional>
#include <string>

namespace sluice {

struct TokenizeArguments {
  std::string model;
  bool no_special = false;
  bool jsonl = false;
  bool json = false;
  std::optional<std::string> chat;  // a file
  std::string snapshot;             // as with a model (apps/open_snapshot.h)
};

// Returns the exit code.
int run_tokenize(const TokenizeArguments& arguments);

}  // namespace sluice
