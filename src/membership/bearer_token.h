// BearerToken: the secret that parties and coordinator share, from a file. Only its SHA-256 is kept
// for comparisons, which take the same time for every token. Immutable; any thread.
#pragma once

#include <string>

#include "base/result.h"
#include "base/sha256.h"

namespace sluice {

class BearerToken {
 public:
  // The file's first line, without blanks around it: 16 to 1024 printable characters. Warns when
  // users other than the owner may read the file. Errors name the file and do not repeat the token.
  static Result<BearerToken> load(const std::string& path);

  // Whether the Authorization header is "Bearer TOKEN". nullptr: it is missing.
  bool admits(const std::string* authorization) const;
  // The header's value, for clients.
  std::string header() const { return "Bearer " + token_; }

 private:
  explicit BearerToken(std::string token) : token_(std::move(token)), digest_(sha256(token_)) {}
  std::string token_;
  Sha256Digest digest_;
};

}  // namespace sluice
