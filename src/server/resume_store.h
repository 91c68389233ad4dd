// ResumeStore: answers that a stopping server could not finish, in files from which a later server
// goes on. A file has the tokens of one answer so far and the seed that they were sampled with, no
// text of the prompt. Only the call that has the same id, tenant, path and body finds it again.
//
// Files lie beside the blocks of --kv-disk (mode 0600). They are encrypted (resume_file.h), and
// their names are HMACs, under keys derived from the secret of the blocks. A file that is too old,
// damaged or made under another secret is not used. The oldest make room for new ones.
// Threads: any. Errors name the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
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
  struct Entry {
    Key key;
    Answer answer;
  };
  struct Limits {
    std::uint64_t max_bytes = std::uint64_t{64} << 20;  // of all files, in whole pages of 4 KiB
    std::uint64_t free_bytes = 0;                       // that the filesystem keeps free
    std::int64_t max_age_s = 30 * 24 * 3600;            // since an answer was saved
  };

  // Removes files that are too old. `folder` exists and is this process's own.
  ResumeStore(std::string folder, const HmacKey& secret, const Limits& limits,
              std::function<std::int64_t()> unix_time = unix_seconds);

  HmacTag digest_body(std::string_view path, std::string_view body) const;
  // Saves each that it can, in this order; a status for each. An older answer of the same call is
  // replaced.
  std::vector<Status> save(std::span<const Entry> entries) const;
  // Nothing: there is no answer for this call. A file that is damaged or too old is removed.
  std::optional<Answer> find(const Key& key) const;
  // The call is answered: later calls begin anew.
  void remove(const Key& key) const;

 private:
  struct OldFile {
    std::int64_t changed = 0;  // Unix seconds
    std::string path;
    std::uint64_t bytes = 0;
  };

  std::string name_of(const Key& key) const;
  std::vector<OldFile> list() const;
  Status write(const std::string& name, const Answer& answer) const;

  const std::string folder_;
  const HmacKey names_;
  const HmacKey bodies_;
  const HmacKey contents_;
  const Limits limits_;
  const std::function<std::int64_t()> unix_time_;
};

}  // namespace sluice
