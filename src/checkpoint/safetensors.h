// One safetensors file: an 8-byte little-endian header length, a JSON header that names every
// tensor (dtype, shape, byte range), then the bytes. The file is mapped read-only; nothing is
// copied. The header is untrusted: a range outside the file, overlapping ranges, a size that is not
// shape x dtype, an unknown dtype or a name given twice is an error that names file and tensor.
// Unused bytes between tensors are allowed.
// Limits: header 100 MB, 1,000,000 tensors, rank 16, sizes below 2^63.
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
#include "checkpoint/checkpoint_file.h"
#include "tensor/dtype.h"

namespace sluice {

// Element types of stored tensors. A safetensors file may hold those up to kU64, and weights in it
// use F32, F16, BF16, F8_E4M3 and I8 alone. The others come from GGUF files, and from matrices that
// model/packed_checkpoint.h repacks.
enum class StoredDType : std::uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kF64,
  kI64,
  kU64,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIq4Nl,
  kIq4Xs,
  kU4G32,
  kU4G128,
  kU8G128,
};

// As written in the file: "BF16".
std::string_view stored_dtype_name(StoredDType dtype);

struct TensorInfo {
  std::string name;
  StoredDType dtype = StoredDType::kF32;
  std::vector<std::int64_t> shape;  // outermost first; empty for a scalar
  std::int32_t file = 0;            // index into Checkpoint::files()
  std::uint64_t offset = 0;         // bytes from the start of the file
  std::uint64_t bytes = 0;
};

// "[128, 64]".
std::string shape_text(std::span<const std::int64_t> shape);

// Null when there is none. REQUIRES: sorted by name.
const TensorInfo* find_tensor(std::span<const TensorInfo> sorted, std::string_view name);

// The type of a tensor that is used as a weight; kUnsupported for all but F32, F16, BF16, F8_E4M3,
// I8 and types of blocks.
Result<DType> weight_dtype(const TensorInfo& tensor);

class SafetensorsFile {
 public:
  // `file_index` goes into every TensorInfo.
  static Result<SafetensorsFile> open(const std::string& path, std::int32_t file_index = 0);

  const std::string& path() const { return file_.path(); }
  std::uint64_t size() const { return file_.size(); }
  // Whether bytes were missing when they were read: the file was truncated.
  bool faulted() const { return file_.faulted(); }
  // The JSON header, unchanged.
  std::string_view header() const {
    return {reinterpret_cast<const char*>(file_.header().data()), file_.header().size()};
  }
  // Sorted by name.
  std::span<const TensorInfo> tensors() const { return tensors_; }
  // Null when there is none.
  const TensorInfo* find(std::string_view name) const;
  // The bytes of a tensor of this file. Their alignment is the file's.
  std::span<const std::byte> data(const TensorInfo& tensor) const {
    return file_.range(tensor.offset, tensor.bytes);
  }
  // The file itself, whose header is the JSON.
  CheckpointFile take_file() && { return std::move(file_); }

 private:
  explicit SafetensorsFile(CheckpointFile file) : file_(std::move(file)) {}

  CheckpointFile file_;
  std::vector<TensorInfo> tensors_;
};

// Parses the `header` of a file of `file_size` bytes. Errors do not name the file; open() adds it.
Result<std::vector<TensorInfo>> parse_safetensors_header(std::string_view header,
                                                         std::uint64_t file_size,
                                                         std::int32_t file_index);

}  // namespace sluice
