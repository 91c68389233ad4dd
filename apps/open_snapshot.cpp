#include "apps/open_snapshot.h"

#include <fmt/format.h>

#include <utility>

#include "base/cache_folder.h"
#include "base/content_hash.h"
#include "base/file_digests.h"
#include "base/log.h"
#include "checkpoint/digest.h"

namespace sluice {
namespace {

// Without a cache folder nothing is remembered, and the small files are read at each start.
FileDigests open_digests() {
  const auto folder = private_cache_folder("snapshots");
  return folder ? FileDigests(*folder + "/digests") : FileDigests();
}

}  // namespace

Result<Snapshot> open_snapshot(const std::string& directory, const SnapshotChoice& choice,
                               const Clock& clock) {
  if (choice.mode == SnapshotMode::kOff) return Snapshot();
  FileDigests files = open_digests();
  ASSIGN_OR_RETURN(const Hash128 config, config_digest(directory, files));
  ASSIGN_OR_RETURN(const Hash128 tokenizer, tokenizer_digest(directory, files));
  if (const Status saved = files.save(); !saved) {
    log_warning(fmt::format("snapshot: the digests of the model's files are not kept: {}",
                            saved.error().message));
  }
  return Snapshot::open(choice, {to_hex(config), to_hex(tokenizer)}, &clock);
}

}  // namespace sluice
