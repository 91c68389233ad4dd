// Checkpoint: the tensors of a model and the files that hold them. Files are mapped, not read; the
// engine maps them into the weights region of an arena by descriptor and size.
// A Hugging Face checkpoint directory has its weights in one safetensors file or in the shards that
// model.safetensors.index.json names. With an index, only the tensors that it lists are visible,
// each in the shard that it names. Names of a model without its head get the prefix that they have
// with it: "layers.0.x" becomes "model.layers.0.x". model/gguf_checkpoint.h makes one of a GGUF
// file. Errors name the file, and the tensor where there is one. Threads: immutable after open();
// any thread may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint_file.h"
#include "checkpoint/safetensors.h"

namespace sluice {

class Checkpoint {
 public:
  static Result<Checkpoint> open(const std::string& directory);
  // No files and no tensors: for a model with dummy weights.
  static Checkpoint without_files(const std::string& directory);
  // For readers of other formats. `directory`: what errors name when no file is to be named.
  // REQUIRES: the tensors lie in the files.
  static Checkpoint from_files(const std::string& directory, std::vector<CheckpointFile> files,
                               std::vector<TensorInfo> tensors);

  const std::string& directory() const { return directory_; }
  std::span<const CheckpointFile> files() const { return files_; }
  // Sorted by name.
  std::span<const TensorInfo> tensors() const { return tensors_; }
  // Null when there is none.
  const TensorInfo* find(std::string_view name) const;
  // The file that holds a tensor of this checkpoint.
  const CheckpointFile& file_of(const TensorInfo& tensor) const;
  std::span<const std::byte> data(const TensorInfo& tensor) const;
  // The files themselves; views of them stay valid.
  std::vector<CheckpointFile> take_files() && { return std::move(files_); }

 private:
  std::string directory_;
  std::vector<CheckpointFile> files_;
  std::vector<TensorInfo> tensors_;
};

// Parses model.safetensors.index.json: (tensor, shard) pairs, sorted by tensor. Shards are plain
// file names. Errors name the field.
Result<std::vector<std::pair<std::string, std::string>>> parse_safetensors_index(
    std::string_view text);

}  // namespace sluice
