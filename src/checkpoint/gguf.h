// One GGUF file (versions 2 and 3, little-endian): metadata (keys with typed values), a list of
// tensors, then the tensors' bytes. The file is mapped read-only; nothing is copied: keys, names
// and values are views of the mapping. The file is untrusted: text, arrays or tensors outside the
// file, overlapping tensors, unknown types, and keys or names given twice are errors that name
// file and field. Unused bytes between tensors are allowed.
// Limits: 65,536 metadata keys, 1,000,000 tensors, rank 4, names of 64 bytes, sizes below 2^63,
// no arrays of arrays.
// Threads: immutable after open(); any thread may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint_file.h"
#include "checkpoint/gguf_types.h"

namespace sluice {

// A value, or an array of `count` elements of one type, as the bytes of the file.
struct GgufValue {
  GgufValueType type = GgufValueType::kU8;  // of an array: of its elements
  bool is_array = false;
  std::uint64_t count = 1;
  std::span<const std::byte> bytes;
};

// Keys and their values. An accessor returns nothing for a key that is not there, and an error that
// names the key for a value of another kind. Views live as long as the bytes that were parsed.
class GgufMetadata {
 public:
  struct Entry {
    std::string_view key;
    GgufValue value;
  };

  GgufMetadata() = default;
  // REQUIRES: sorted by key, each key once.
  explicit GgufMetadata(std::vector<Entry> entries) : entries_(std::move(entries)) {}

  std::span<const Entry> entries() const { return entries_; }
  // Null when there is none.
  const GgufValue* find(std::string_view key) const;

  // An integer of any width that is not negative.
  Result<std::optional<std::uint64_t>> whole_number(std::string_view key) const;
  // An F32 or F64.
  Result<std::optional<double>> real_number(std::string_view key) const;
  Result<std::optional<bool>> flag(std::string_view key) const;
  Result<std::optional<std::string_view>> text(std::string_view key) const;
  Result<std::optional<std::vector<std::string_view>>> texts(std::string_view key) const;
  // An array of integers of any width; U64 values must be below 2^63.
  Result<std::optional<std::vector<std::int64_t>>> integers(std::string_view key) const;
  // An array of F32 or F64.
  Result<std::optional<std::vector<double>>> real_numbers(std::string_view key) const;

 private:
  std::vector<Entry> entries_;
};

struct GgufTensor {
  std::string_view name;
  GgufTensorType type = GgufTensorType::kF32;
  std::vector<std::int64_t> shape;  // outermost first: the reverse of the order in the file
  std::int32_t file = 0;            // index into GgufModel::files()
  std::uint64_t offset = 0;         // bytes from the start of the file
  std::uint64_t bytes = 0;
};

struct GgufHeader {
  std::size_t bytes = 0;  // that the header takes
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;  // sorted by name
};

// Parses the bytes of a whole file, of which it reads the header only. Errors do not name the file;
// open() adds it.
Result<GgufHeader> parse_gguf(std::span<const std::byte> file, std::int32_t file_index);

// Whether a MODEL argument names a GGUF file: its name ends in ".gguf", and it is no directory.
bool is_gguf_path(const std::string& path);

class GgufFile {
 public:
  // `file_index` goes into every GgufTensor.
  static Result<GgufFile> open(const std::string& path, std::int32_t file_index = 0);

  const std::string& path() const { return file_.path(); }
  std::uint64_t size() const { return file_.size(); }
  const GgufMetadata& metadata() const { return header_.metadata; }
  // Sorted by name.
  std::span<const GgufTensor> tensors() const { return header_.tensors; }
  // The bytes of a tensor of this file; aligned to 8 bytes at least when the mapping is.
  std::span<const std::byte> data(const GgufTensor& tensor) const {
    return file_.range(tensor.offset, tensor.bytes);
  }
  // The file itself, with its header; views of it stay valid.
  const CheckpointFile& file() const { return file_; }
  CheckpointFile take_file() && { return std::move(file_); }

 private:
  explicit GgufFile(CheckpointFile file) : file_(std::move(file)) {}

  CheckpointFile file_;
  GgufHeader header_;
};

// A model in one file, or in the parts NAME-00001-of-0000N.gguf to NAME-0000N-of-0000N.gguf.
class GgufModel {
 public:
  // `path` names the file, or any of the parts: all are opened.
  static Result<GgufModel> open(const std::string& path);

  std::span<const GgufFile> files() const { return files_; }
  // The first part describes the whole model.
  const GgufMetadata& metadata() const { return files_.front().metadata(); }
  // The tensors of every part, sorted by name.
  std::span<const GgufTensor> tensors() const { return tensors_; }
  // Null when there is none.
  const GgufTensor* find(std::string_view name) const;
  std::span<const std::byte> data(const GgufTensor& tensor) const;
  // The files themselves; views of them stay valid.
  std::vector<CheckpointFile> take_files() &&;

 private:
  std::vector<GgufFile> files_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace sluice
