#include "model/gguf_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "checkpoint/gguf.h"
#include "checkpoint/quote_text.h"
#include "model/gguf_config.h"
#include "model/gguf_names.h"
#include "model/model_config.h"

namespace sluice {
namespace {

constexpr std::size_t kAlignment = 64;  // of tensors in memory

std::optional<StoredDType> stored_dtype(GgufTensorType type) {
  switch (type) {
    case GgufTensorType::kF32: return StoredDType::kF32;
    case GgufTensorType::kF16: return StoredDType::kF16;
    case GgufTensorType::kBF16: return StoredDType::kBF16;
    case GgufTensorType::kQ4_0: return StoredDType::kQ4_0;
    case GgufTensorType::kQ4_1: return StoredDType::kQ4_1;
    case GgufTensorType::kQ5_0: return StoredDType::kQ5_0;
    case GgufTensorType::kQ5_1: return StoredDType::kQ5_1;
    case GgufTensorType::kQ8_0: return StoredDType::kQ8_0;
    case GgufTensorType::kQ2_K: return StoredDType::kQ2K;
    case GgufTensorType::kQ3_K: return StoredDType::kQ3K;
    case GgufTensorType::kQ4_K: return StoredDType::kQ4K;
    case GgufTensorType::kQ5_K: return StoredDType::kQ5K;
    case GgufTensorType::kQ6_K: return StoredDType::kQ6K;
    case GgufTensorType::kIQ4_NL: return StoredDType::kIq4Nl;
    case GgufTensorType::kIQ4_XS: return StoredDType::kIq4Xs;
    default: return std::nullopt;
  }
}

Result<TensorInfo> tensor_info(const GgufTensor& tensor, std::string name) {
  const auto dtype = stored_dtype(tensor.type);
  if (!dtype) {
    return unsupported(
        fmt::format("tensor {} is {}; expected {}: take a file of the model in one of these types",
                    quote_text(tensor.name), gguf_tensor_type_name(tensor.type), kGgufModelTypes));
  }
  return TensorInfo{std::move(name), *dtype,        tensor.shape,
                    tensor.file,     tensor.offset, tensor.bytes};
}

// A tensor whose rows are in pairs in the file, and its place in memory.
struct PairedRows {
  std::size_t tensor = 0;  // index into the checkpoint's tensors
  std::span<const std::byte> source;
  std::size_t offset = 0;
};

// The copy relies on whole heads of an even width.
Status check_heads(const GgufTensor& tensor, std::int64_t head_dim) {
  if (head_dim > 0 && head_dim % 2 == 0 && tensor.shape.front() % head_dim == 0) return {};
  return invalid_argument(
      fmt::format("tensor {} has shape {}; expected whole heads of an even width, and they are {} "
                  "wide",
                  quote_text(tensor.name), shape_text(tensor.shape), head_dim));
}

void copy_paired_rows(const TensorInfo& tensor, std::span<const std::byte> source,
                      std::int64_t head_dim, std::span<std::byte> target) {
  const std::int64_t rows = tensor.shape.front();
  const std::size_t row_bytes = source.size() / static_cast<std::size_t>(rows);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::memcpy(target.data() + static_cast<std::size_t>(row) * row_bytes,
                source.data() + static_cast<std::size_t>(paired_row(row, head_dim)) * row_bytes,
                row_bytes);
  }
}

// Puts the copies into a file in memory, and the tensors there.
Result<CheckpointFile> copy_rows(const std::string& path, std::span<const PairedRows> paired,
                                 std::size_t bytes, std::int64_t head_dim, std::int32_t file,
                                 std::vector<TensorInfo>& tensors) {
  auto made =
      CheckpointFile::make(path + " (queries and keys)", bytes, [&](std::span<std::byte> memory) {
        for (const PairedRows& rows : paired) {
          copy_paired_rows(tensors[rows.tensor], rows.source, head_dim,
                           memory.subspan(rows.offset, rows.source.size()));
        }
      });
  if (!made) return made;
  for (const PairedRows& rows : paired) {
    tensors[rows.tensor].file = file;
    tensors[rows.tensor].offset = rows.offset;
  }
  return made;
}

Result<std::int64_t> head_width(const GgufModel& model) {
  ASSIGN_OR_RETURN(const std::string text, gguf_config_json(model));
  ASSIGN_OR_RETURN(const ModelConfig config, parse_model_config(text));
  return config.layers.front().head_dim;
}

Result<Checkpoint> make_checkpoint(const std::string& path, GgufModel model) {
  ASSIGN_OR_RETURN(const bool pairs, gguf_pairs_rows(model.metadata()));
  std::int64_t head_dim = 0;
  if (pairs) {
    ASSIGN_OR_RETURN(head_dim, head_width(model));
  }
  std::vector<TensorInfo> tensors;
  std::vector<PairedRows> paired;
  std::size_t bytes = 0;
  for (const GgufTensor& tensor : model.tensors()) {
    auto name = checkpoint_name(tensor.name);
    if (!name) continue;  // rotary factors; the reader of the configuration refuses all others
    ASSIGN_OR_RETURN(TensorInfo info, tensor_info(tensor, *std::move(name)));
    if (pairs && has_paired_rows(tensor.name)) {
      RETURN_IF_ERROR(check_heads(tensor, head_dim));
      paired.push_back({tensors.size(), model.data(tensor), bytes});
      bytes += (static_cast<std::size_t>(info.bytes) + kAlignment - 1) / kAlignment * kAlignment;
    }
    tensors.push_back(std::move(info));
  }
  const auto number = static_cast<std::int32_t>(model.files().size());
  std::optional<CheckpointFile> copies;
  if (!paired.empty()) {
    ASSIGN_OR_RETURN(copies, copy_rows(path, paired, bytes, head_dim, number, tensors));
  }
  std::vector<CheckpointFile> files = std::move(model).take_files();
  for (const CheckpointFile& file : files) {
    if (file.faulted()) return unavailable("was truncated while it was read");
  }
  if (copies) files.push_back(*std::move(copies));
  return Checkpoint::from_files(path, std::move(files), std::move(tensors));
}

}  // namespace

Result<Checkpoint> open_gguf_checkpoint(const std::string& path) {
  ASSIGN_OR_RETURN(GgufModel model, GgufModel::open(path));
  auto checkpoint = make_checkpoint(path, std::move(model));
  if (!checkpoint) return with_context(path, checkpoint.error());
  return checkpoint;
}

}  // namespace sluice
