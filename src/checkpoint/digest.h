// Digests that name a checkpoint: keys of prefix caches, snapshots and packed weights.
// Threads: functions read files and have no other effect; a cache belongs to one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "checkpoint/checkpoint.h"

namespace sluice {

// Names a model cheaply, without reading its weights: SHA-256 over config.json and, for every
// weight file in order, its name, its size, its header and 16 samples of 4 KiB spread evenly over
// its data. A change outside the samples does not change the digest; content_digest() reads
// everything.
Result<Sha256Digest> model_digest(const Checkpoint& checkpoint);

// Digests of whole files, remembered by device, inode, size, mtime and ctime, so that a file is
// read again only when it changed.
class FileDigestCache {
 public:
  Result<Sha256Digest> digest(const SafetensorsFile& file);
  // How many files had to be read so far.
  std::uint64_t files_read() const { return files_read_; }

 private:
  struct Identity {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    std::uint64_t size = 0;
    std::int64_t modified_ns = 0;
    std::int64_t changed_ns = 0;
    friend bool operator==(const Identity&, const Identity&) = default;
  };
  struct Entry {
    Identity identity;
    Sha256Digest digest{};
  };
  static Result<Identity> identify(const SafetensorsFile& file);

  std::vector<Entry> entries_;
  std::uint64_t files_read_ = 0;
};

// SHA-256 over config.json and the SHA-256 of every weight file, in order.
Result<Sha256Digest> content_digest(const Checkpoint& checkpoint, FileDigestCache& cache);

}  // namespace sluice
