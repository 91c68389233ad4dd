// A Hugging Face checkpoint directory: its weights in one safetensors file or in shards named by
// model.safetensors.index.json. Files are mapped, not read; a file's descriptor and size let the
// engine map it into the weights region of an arena.
// With an index, exactly the tensors it lists are visible, each in the shard it names.
// Errors name the file, and the tensor where there is one.
// Threads: immutable after open(); any thread may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "checkpoint/safetensors.h"

namespace sluice {

class Checkpoint {
 public:
  static Result<Checkpoint> open(const std::string& directory);

  const std::string& directory() const { return directory_; }
  std::span<const SafetensorsFile> files() const { return files_; }
  // Sorted by name.
  std::span<const TensorInfo> tensors() const { return tensors_; }
  // Null when there is none.
  const TensorInfo* find(std::string_view name) const;
  // The file a tensor of this checkpoint lies in.
  const SafetensorsFile& file_of(const TensorInfo& tensor) const;
  std::span<const std::byte> data(const TensorInfo& tensor) const;
  // Sum over all tensors.
  std::uint64_t tensor_bytes() const;

 private:
  std::string directory_;
  std::vector<SafetensorsFile> files_;
  std::vector<TensorInfo> tensors_;
};

// Names a model cheaply, without reading its weights: SHA-256 over config.json, and for every
// weight file its name, size, header bytes, and 64 KiB samples spread over its data. Two
// checkpoints of one shape with different weights differ unless they agree in every sample; a
// change of single weights outside the samples goes unnoticed (content_digest sees it).
Result<Sha256Digest> model_digest(const Checkpoint& checkpoint);

// SHA-256 over config.json and the SHA-256 of every weight file, in order. Reads everything.
class ContentDigestCache;
Result<Sha256Digest> content_digest(const Checkpoint& checkpoint, ContentDigestCache& cache);

// Digests of whole files, remembered by device, inode, size, mtime and ctime, so that a file is
// read again only when it changed. Owner: whoever computes digests. Threads: one.
class ContentDigestCache {
 public:
  Result<Sha256Digest> digest(const SafetensorsFile& file);
  std::uint64_t files_read() const { return files_read_; }

 private:
  struct Entry {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    std::uint64_t size = 0;
    std::int64_t modified_ns = 0;
    std::int64_t changed_ns = 0;
    Sha256Digest digest{};
  };
  std::vector<Entry> entries_;
  std::uint64_t files_read_ = 0;
};

}  // namespace sluice
