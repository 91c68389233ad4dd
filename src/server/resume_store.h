// ResumeStore: answers that a stopping server could not finish, in files from which a later server
// goes on. A file has the tokens of one answer so far and the seed that they were sampled with, no
// text of the prompt. Only the call that has the same id, tenant, path and body finds it again.
//
// Files lie beside the blocks of --kv-disk (mode 0600). They are encrypted with AES-256-GCM, and
// their names are HMACs, under keys derived from the secret of the blocks. A file that is too old,
// damaged or made under another secret is not used.
// Threads: any. Errors name the file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash128.h"
#include "base/hmac.h"
#include "base/result.h"
#include "base/token_id.h"
#include "base/unix_time.h"

namespace sluice {

class ResumeStore {
 public:
  // The call that an answer belongs to.
  struct Key {
    std::string tenant;
    std::string request_id;  // the client's X-Request-Id
    Hash128 root;            // of the names of the prompt's blocks: model, tenant, adapter
    HmacTag body{};          // digest_body()
  };
  struct Answer {
    std::uint64_t seed = 0;
    std::vector<TokenId> tokens;
  };

  // Removes files that are too old. `folder` exists and is this process's own.
  ResumeStore(std::string folder, const HmacKey& secret, std::int64_t max_age_s,
              std::function<std::int64_t()> unix_time = unix_seconds);

  HmacTag digest_body(std::string_view path, std::string_view body) const;
  Status save(const Key& key, const Answer& answer) const;
  // Removes the answer and returns it. Nothing: there is none for this call.
  std::optional<Answer> take(const Key& key) const;

 private:
  std::string path_of(const Key& key) const;
  void remove_old() const;

  const std::string folder_;
  const HmacKey names_;
  const HmacKey bodies_;
  const HmacKey contents_;
  const std::int64_t max_age_s_;
  const std::function<std::int64_t()> unix_time_;
};

}  // namespace sluice
