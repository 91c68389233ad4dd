// ApiKeys: who may call, from a file with one key a line: `NAME KEY` or `KEY` alone (then the name
// is "key" and the line's number). '#' begins a comment; blank lines are skipped. Several keys may
// have one name, which is how keys are changed without a gap: the name is the tenant. Only SHA-256
// digests are kept, and looking up takes the same time whichever key is asked for.
// Immutable after loading: any thread. Limit: files up to 4 MiB.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"

namespace sluice {

class ApiKeys {
 public:
  // Errors name file and line. Warns when others than the owner may read the file.
  static Result<ApiKeys> load(const std::string& path);
  // The same from the file's text; `path` is for messages.
  static Result<ApiKeys> parse(std::string_view text, std::string_view path);

  // The name of the key in an Authorization header ("Bearer KEY"); nullopt: missing or unknown.
  std::optional<std::string_view> find(const std::string* authorization) const;
  std::size_t size() const { return keys_.size(); }

 private:
  struct Key {
    std::string name;
    Sha256Digest digest;
  };
  std::vector<Key> keys_;
};

}  // namespace sluice
