#include "checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "checkpoint/quote_text.h"

namespace sluice {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
// The reference implementation's limit.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

std::uint64_t little_endian_u64(const std::byte* bytes) {
  std::uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = (value << 8) | std::to_integer<std::uint64_t>(bytes[i]);
  return value;
}

Result<std::uint64_t> header_length(std::span<const std::byte> file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (file.size() < kLengthBytes) {
    return invalid_argument(fmt::format(
        "{} bytes are too short for a safetensors file, which begins with an 8-byte length",
        file.size()));
  }
  // A clone without Git LFS has a pointer file in place of a large file.
  if (text.starts_with("version https://git-lfs")) {
    return invalid_argument(
        "is a Git LFS pointer, not the file itself; fetch that with 'git lfs pull' or 'hf "
        "download'");
  }
  const std::uint64_t length = little_endian_u64(file.data());
  if (length > kMaxHeaderBytes) {
    return invalid_argument(
        fmt::format("header length {} is beyond the limit of {} bytes; not a safetensors file?",
                    length, kMaxHeaderBytes));
  }
  if (length > file.size() - kLengthBytes) {
    return invalid_argument(fmt::format(
        "header length {} reaches beyond the file of {} bytes; the file is truncated or not a "
        "safetensors file",
        length, file.size()));
  }
  return length;
}

}  // namespace

std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", join(shape, ", "));
}

const TensorInfo* find_tensor(std::span<const TensorInfo> sorted, std::string_view name) {
  const auto found =
      std::lower_bound(sorted.begin(), sorted.end(), name,
                       [](const TensorInfo& t, std::string_view n) { return t.name < n; });
  return found != sorted.end() && found->name == name ? &*found : nullptr;
}

Result<DType> weight_dtype(const TensorInfo& tensor) {
  switch (tensor.dtype) {
    case StoredDType::kF32: return DType::kF32;
    case StoredDType::kF16: return DType::kF16;
    case StoredDType::kBF16: return DType::kBF16;
    case StoredDType::kF8E4M3: return DType::kF8E4M3;
    case StoredDType::kQ4_0: return DType::kI4;
    case StoredDType::kQ4_1: return DType::kQ4_1;
    case StoredDType::kQ5_0: return DType::kQ5_0;
    case StoredDType::kQ5_1: return DType::kQ5_1;
    case StoredDType::kQ8_0: return DType::kQ8_0;
    case StoredDType::kQ2K: return DType::kQ2K;
    case StoredDType::kQ3K: return DType::kQ3K;
    case StoredDType::kQ4K: return DType::kQ4K;
    case StoredDType::kQ5K: return DType::kQ5K;
    case StoredDType::kQ6K: return DType::kQ6K;
    case StoredDType::kIq4Nl: return DType::kIq4Nl;
    case StoredDType::kIq4Xs: return DType::kIq4Xs;
    case StoredDType::kU4G32: return DType::kU4G32;
    case StoredDType::kU4G128: return DType::kU4G128;
    case StoredDType::kU8G128: return DType::kU8G128;
    case StoredDType::kI8: return DType::kI8;
    default:
      return unsupported(
          fmt::format("tensor {}: dtype {} is not supported for weights; "
                      "expected F32, F16, BF16, F8_E4M3 or I8",
                      quote_text(tensor.name), stored_dtype_name(tensor.dtype)));
  }
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path, std::int32_t file_index) {
  ASSIGN_OR_RETURN(CheckpointFile file, CheckpointFile::open(path));
  const Result<std::uint64_t> length = header_length(file.bytes());
  if (!length) return with_context(path, length.error());
  file.set_header(kLengthBytes, static_cast<std::size_t>(kLengthBytes + *length));
  SafetensorsFile result(std::move(file));
  auto tensors = parse_safetensors_header(result.header(), result.size(), file_index);
  if (!tensors) return with_context(path, tensors.error());
  result.tensors_ = std::move(*tensors);
  return result;
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  return find_tensor(tensors_, name);
}

}  // namespace sluice
