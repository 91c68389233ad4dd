// Loads a bearer token from a file with some text, as a command does.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "membership/bearer_token.h"

namespace sluice::test {

inline constexpr const char* kToken = "0123456789abcdef0123";

// The file is gone afterwards.
inline Result<BearerToken> load_token(const std::string& text) {
  const std::string path =
      testing::TempDir() + "/token_" + std::to_string(static_cast<int>(getpid()));
  std::ofstream(path) << text;
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  Result<BearerToken> token = BearerToken::load(path);
  std::filesystem::remove(path);
  return token;
}

}  // namespace sluice::test
