// ApiKeys: the keys that may call, from a file with one key a line:
//   NAME KEY [SETTING=VALUE ...]
// '#' begins a comment; blank lines are skipped. A key with role=admin sees the requests of every
// tenant; the other settings are limits (server/key_limits.h). The name is the tenant. Several keys
// may have the same name, so that a tenant can change keys without an interruption; they share its
// limits. Only SHA-256 digests are kept, and a look-up takes the same time for every key.
// Immutable after loading: any thread. Limit: files up to 4 MiB.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "server/key_limits.h"

namespace sluice {

struct ApiKey {
  std::string name;  // the tenant
  bool is_admin = false;
  Sha256Digest digest{};
};

class ApiKeys {
 public:
  // REQUIRES: no digest appears twice.
  ApiKeys(std::vector<ApiKey> keys, std::map<std::string, KeyLimits, std::less<>> limits)
      : keys_(std::move(keys)), limits_(std::move(limits)) {}

  // Errors name file and line. Warns when users other than the owner may read the file.
  static Result<ApiKeys> load(const std::string& path);
  // The same from the file's text; `path` is for messages.
  static Result<ApiKeys> parse(std::string_view text, std::string_view path);
  // One key, whose tenant is "default". Errors do not repeat the key.
  static Result<ApiKeys> single(std::string_view key);

  // The key in an Authorization header ("Bearer KEY"); nullptr: missing or unknown.
  const ApiKey* find(const std::string* authorization) const;
  // The key as the text of a header of its own (Anthropic's x-api-key).
  const ApiKey* find_key(std::string_view key) const;
  // The limits of a name; none for names that the file does not have.
  const KeyLimits& limits_of(std::string_view name) const;
  bool any_admin() const;
  std::size_t size() const { return keys_.size(); }

 private:
  ApiKeys() = default;

  std::vector<ApiKey> keys_;
  std::map<std::string, KeyLimits, std::less<>> limits_;  // by name
};

}  // namespace sluice
