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
#include <utility>
#include <vector>

#include "base/result.h"
#include "checkpoint/safetensors.h"

namespace sluice {

class Checkpoint {
 public:
  static Result<Checkpoint> open(const std::string& directory);
  // No files and no tensors: for a model with dummy weights.
  static Checkpoint without_files(const std::string& directory);

  const std::string& directory() const { return directory_; }
  std::span<const SafetensorsFile> files() const { return files_; }
  // Sorted by name.
  std::span<const TensorInfo> tensors() const { return tensors_; }
  // Null when there is none.
  const TensorInfo* find(std::string_view name) const;
  // The file that holds a tensor of this checkpoint.
  const SafetensorsFile& file_of(const TensorInfo& tensor) const;
  std::span<const std::byte> data(const TensorInfo& tensor) const;

 private:
  std::string directory_;
  std::vector<SafetensorsFile> files_;
  std::vector<TensorInfo> tensors_;
};

// Parses model.safetensors.index.json: (tensor, shard) pairs, sorted by tensor. Shards are plain
// file names. Errors name the field.
Result<std::vector<std::pair<std::string, std::string>>> parse_safetensors_index(
    std::string_view text);

}  // namespace sluice
