#include "apps/open_snapshot.h"

#include <fmt/format.h>
#include <gnu/libc-version.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/cache_folder.h"
#include "base/content_hash.h"
#include "base/file_digests.h"
#include "base/log.h"
#include "checkpoint/digest.h"
#include "model/model_files.h"

namespace sluice {
namespace {

// Without a cache folder nothing is remembered, and the small files are read at each start.
FileDigests open_digests() {
  const auto folder = private_cache_folder("snapshots");
  return folder ? FileDigests(*folder + "/digests") : FileDigests();
}

void remember(FileDigests& files) {
  const Status saved = files.save();
  // Another start may be writing the same digests.
  if (saved || saved.error().code == ErrorCode::kResourceExhausted) return;
  log_warning(fmt::format("snapshot: the digests of the model's files are not kept: {}",
                          saved.error().message));
}

// Reads every byte of the weights unless their digest is remembered. Empty for dummy weights.
Result<std::string> digest_of_weights(const std::string& directory, LoadFormat format,
                                      FileDigests& files) {
  if (format == LoadFormat::kDummy) return std::string();
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, open_checkpoint(directory));
  ASSIGN_OR_RETURN(const Hash128 digest, weights_digest(checkpoint, files));
  return to_hex(digest);
}

}  // namespace

SnapshotChoice parse_snapshot_choice(const std::string& text) {
  if (text.empty() || text == "auto") return {SnapshotMode::kAuto};
  if (text == "off") return {SnapshotMode::kOff};
  return {SnapshotMode::kFile, text};
}

Result<Snapshot> open_snapshot(const std::string& directory, const SnapshotChoice& choice,
                               const Clock& clock) {
  if (choice.mode == SnapshotMode::kOff) return Snapshot();
  FileDigests files = open_digests();
  ASSIGN_OR_RETURN(const Hash128 config, config_digest(directory, files));
  ASSIGN_OR_RETURN(const Hash128 tokenizer, tokenizer_digest(directory, files));
  remember(files);
  return Snapshot::open(choice, {to_hex(config), to_hex(tokenizer)}, &clock);
}

Result<std::string> program_digest() {
  std::error_code failed;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed) return internal_error("/proc/self/exe cannot be read: " + failed.message());
  FileDigests files = open_digests();
  ASSIGN_OR_RETURN(const Hash128 digest, files.digest(program.string()));
  remember(files);
  return fmt::format("{}, glibc {}", to_hex(digest), gnu_get_libc_version());
}

Result<Snapshot> open_snapshot(const std::string& directory, const EngineOptions& options,
                               const Clock& clock) {
  ASSIGN_OR_RETURN(Snapshot snapshot, open_snapshot(directory, options.snapshot, clock));
  if (!options.snapshot.weights && !snapshot.has_kind(kWeightsSection)) return snapshot;
  FileDigests files = open_digests();
  ASSIGN_OR_RETURN(std::string digest, digest_of_weights(directory, options.load_format, files));
  remember(files);
  snapshot.set_weights_digest(std::move(digest));
  return snapshot;
}

Result<SnapshotKey> model_content(const std::string& directory, const EngineOptions& options,
                                  const SnapshotModel& known) {
  FileDigests files = open_digests();
  auto [config, tokenizer, weights] = known;
  if (config.empty()) {
    ASSIGN_OR_RETURN(const Hash128 digest, config_digest(directory, files));
    config = to_hex(digest);
  }
  if (tokenizer.empty()) {
    ASSIGN_OR_RETURN(const Hash128 digest, tokenizer_digest(directory, files));
    tokenizer = to_hex(digest);
  }
  if (weights.empty()) {
    ASSIGN_OR_RETURN(weights, digest_of_weights(directory, options.load_format, files));
  }
  remember(files);
  return SnapshotKey{{"config.json", config},
                     {"tokenizer", tokenizer},
                     {"weights", weights.empty() ? "dummy" : weights}};
}

}  // namespace sluice
