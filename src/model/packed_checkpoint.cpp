#include "model/packed_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/page_in.h"
#include "checkpoint/quote_text.h"
#include "model/packed_matrix.h"

namespace sluice {
namespace {

constexpr std::size_t kAlignedTo = 64;  // of matrices in memory

StoredDType stored_block_type(DType type) {
  switch (type) {
    case DType::kI4: return StoredDType::kQ4_0;
    case DType::kU4G32: return StoredDType::kU4G32;
    case DType::kU4G128: return StoredDType::kU4G128;
    case DType::kU8G128: return StoredDType::kU8G128;
    default: CHECK(type == DType::kQ8_0); return StoredDType::kQ8_0;
  }
}

// The last part of the name of the tensor with a matrix's codes.
std::string_view codes_name(Packing packing) {
  switch (packing) {
    case Packing::kGptq:
    case Packing::kGptqV2:
    case Packing::kAwq: return "qweight";
    case Packing::kCompressed: return "weight_packed";
    case Packing::kPlainInt8: return "weight";
  }
  return {};
}

// The orders of columns and their places behind the blocks. Matrices that share an input mostly
// have the same one, which the op then applies once.
using Orders = std::map<std::vector<std::int32_t>, std::size_t>;
using Order = Orders::value_type;

// A matrix and its place among the blocks.
struct FoundMatrix {
  std::string module;  // "model.layers.0.mlp.up_proj"
  PackedMatrix matrix;
  const Order* order = nullptr;
  DType type = DType::kU4G128;
  std::size_t offset = 0;
};

// Finds the parts of one matrix by their names, and checks that they fit together.
class MatrixFinder {
 public:
  MatrixFinder(const Checkpoint& checkpoint, const WeightPacking& form, std::string module)
      : checkpoint_(checkpoint), form_(form), module_(std::move(module)) {}

  Result<PackedMatrix> find() {
    PackedMatrix m;
    m.form = form_;
    switch (form_.packing) {
      case Packing::kGptq:
      case Packing::kGptqV2:
      case Packing::kAwq: RETURN_IF_ERROR(read_words_by_column(m)); break;
      case Packing::kCompressed: RETURN_IF_ERROR(read_words_by_row(m)); break;
      case Packing::kPlainInt8: RETURN_IF_ERROR(read_bytes(m)); break;
    }
    return m;
  }
  // The names of the tensors that were read.
  const std::vector<std::string>& parts() const { return parts_; }
  // PackedMatrix::order.
  std::vector<std::int32_t> take_order() { return std::move(order_); }

 private:
  Result<const TensorInfo*> part(std::string_view suffix) {
    const TensorInfo* tensor = optional_part(suffix);
    if (tensor != nullptr) return tensor;
    return not_found(fmt::format("{}: tensor {} is missing; {} is there", checkpoint_.directory(),
                                 quote_text(fmt::format("{}.{}", module_, suffix)),
                                 quote_text(parts_.empty() ? module_ : parts_.front())));
  }
  const TensorInfo* optional_part(std::string_view suffix) {
    std::string name = fmt::format("{}.{}", module_, suffix);
    const TensorInfo* tensor = checkpoint_.find(name);
    if (tensor != nullptr) parts_.push_back(std::move(name));
    return tensor;
  }
  Error wrong(const TensorInfo& tensor, std::string_view what) const {
    return invalid_argument(fmt::format("{}: tensor {} {}", checkpoint_.file_of(tensor).path(),
                                        quote_text(tensor.name), what));
  }
  Status expect(const TensorInfo& tensor, StoredDType dtype,
                const std::vector<std::int64_t>& shape) const {
    if (tensor.dtype == dtype && tensor.shape == shape) return {};
    return wrong(
        tensor, fmt::format("is {} {}; expected {} {}", stored_dtype_name(tensor.dtype),
                            shape_text(tensor.shape), stored_dtype_name(dtype), shape_text(shape)));
  }
  // The two sizes of a tensor of codes, neither of them 0.
  Status expect_matrix(const TensorInfo& tensor, StoredDType dtype) const {
    const std::vector<std::int64_t>& shape = tensor.shape;
    if (tensor.dtype == dtype && shape.size() == 2 && shape[0] > 0 && shape[1] > 0) return {};
    return wrong(tensor, fmt::format("is {} {}; expected {} [rows, columns]",
                                     stored_dtype_name(tensor.dtype), shape_text(shape),
                                     stored_dtype_name(dtype)));
  }

  Status read_scales(PackedMatrix& m, std::string_view suffix,
                     const std::vector<std::int64_t>& shape) {
    ASSIGN_OR_RETURN(const TensorInfo* scales, part(suffix));
    const auto dtype = weight_dtype(*scales);
    if (!dtype || !is_float(*dtype)) {
      return wrong(*scales, fmt::format("is {}; expected F32, F16 or BF16",
                                        stored_dtype_name(scales->dtype)));
    }
    m.scale_dtype = *dtype;
    m.scales = checkpoint_.data(*scales);
    const bool vector = shape[1] == 1 && scales->shape == std::vector<std::int64_t>{shape[0]};
    return vector ? Status() : expect(*scales, scales->dtype, shape);
  }

  // Columns may have been quantized in another order than they are stored in; `groups` has the
  // group of each column then. A group of -1 means that there is no order, in compressed-tensors.
  Status read_order(const TensorInfo* groups, const PackedMatrix& m) {
    if (groups == nullptr) return {};
    RETURN_IF_ERROR(expect(*groups, StoredDType::kI32, {m.cols}));
    const std::span<const std::byte> bytes = checkpoint_.data(*groups);
    std::vector<std::int32_t> of_column(static_cast<std::size_t>(m.cols));
    std::memcpy(of_column.data(), bytes.data(), bytes.size());
    const bool may_lack =
        form_.packing == Packing::kCompressed || form_.packing == Packing::kPlainInt8;
    if (may_lack && std::ranges::count(of_column, -1) > 0) return {};
    std::vector<std::int32_t> order(of_column.size());
    std::iota(order.begin(), order.end(), 0);
    const auto group_of = [&](std::int32_t column) {
      return of_column[static_cast<std::size_t>(column)];
    };
    std::ranges::stable_sort(order, {}, group_of);
    for (std::int64_t k = 0; k < m.cols; ++k) {
      const std::int32_t column = order[static_cast<std::size_t>(k)];
      if (group_of(column) == k / m.group()) continue;
      return wrong(*groups, fmt::format("puts column {} into group {}; expected {} groups of {} "
                                        "columns each",
                                        column, group_of(column), m.groups(), m.group()));
    }
    if (!std::ranges::is_sorted(of_column)) order_ = std::move(order);
    return {};
  }

  Status read_words_by_column(PackedMatrix& m) {
    const bool awq = form_.packing == Packing::kAwq;
    ASSIGN_OR_RETURN(const TensorInfo* codes, part("qweight"));
    RETURN_IF_ERROR(expect_matrix(*codes, StoredDType::kI32));
    const std::int64_t per_word = m.codes_of_word();
    m.rows = codes->shape[1] * (awq ? per_word : 1);
    m.cols = codes->shape[0] * (awq ? 1 : per_word);
    m.codes = checkpoint_.data(*codes);
    if (m.rows % per_word != 0) {
      return wrong(*codes, fmt::format("has shape {}; expected a multiple of {} outputs",
                                       shape_text(codes->shape), per_word));
    }
    RETURN_IF_ERROR(read_scales(m, "scales", {m.groups(), m.rows}));
    ASSIGN_OR_RETURN(const TensorInfo* zeros, part("qzeros"));
    RETURN_IF_ERROR(expect(*zeros, StoredDType::kI32, {m.groups(), m.rows / per_word}));
    m.zeros = checkpoint_.data(*zeros);
    return read_order(awq ? nullptr : optional_part("g_idx"), m);
  }

  // weight_shape: the matrix's shape, of which the words tell the columns only roughly.
  Result<std::int64_t> columns_of(const TensorInfo& codes, std::int64_t per_word) {
    ASSIGN_OR_RETURN(const TensorInfo* shape, part("weight_shape"));
    if (shape->dtype != StoredDType::kI32) {
      RETURN_IF_ERROR(expect(*shape, StoredDType::kI64, {2}));
    } else {
      RETURN_IF_ERROR(expect(*shape, StoredDType::kI32, {2}));
    }
    const std::span<const std::byte> bytes = checkpoint_.data(*shape);
    std::int64_t dims[2] = {};
    if (shape->dtype == StoredDType::kI64) {
      std::memcpy(dims, bytes.data(), sizeof(dims));
    } else {
      std::int32_t narrow[2] = {};
      std::memcpy(narrow, bytes.data(), sizeof(narrow));
      std::copy(std::begin(narrow), std::end(narrow), std::begin(dims));
    }
    const std::int64_t most = codes.shape[1] * per_word;
    if (dims[0] == codes.shape[0] && dims[1] <= most && dims[1] > most - per_word) return dims[1];
    return wrong(*shape, fmt::format("says {}, but {} is {}", shape_text(dims),
                                     quote_text(codes.name), shape_text(codes.shape)));
  }

  // A symmetric file may have zero points too, all of them 0.
  Status read_row_zeros(PackedMatrix& m) {
    if (!form_.zero_points) {
      optional_part("weight_zero_point");
      return {};
    }
    ASSIGN_OR_RETURN(const TensorInfo* zeros, part("weight_zero_point"));
    m.zeros_are_bytes = zeros->dtype == StoredDType::kI8 || form_.packing == Packing::kPlainInt8;
    const std::int64_t words = (m.rows + m.codes_of_word() - 1) / m.codes_of_word();
    RETURN_IF_ERROR(m.zeros_are_bytes ? expect(*zeros, StoredDType::kI8, {m.rows, m.groups()})
                                      : expect(*zeros, StoredDType::kI32, {words, m.groups()}));
    m.zeros = checkpoint_.data(*zeros);
    return {};
  }

  Status read_words_by_row(PackedMatrix& m) {
    ASSIGN_OR_RETURN(const TensorInfo* codes, part("weight_packed"));
    RETURN_IF_ERROR(expect_matrix(*codes, StoredDType::kI32));
    const std::int64_t per_word = m.codes_of_word();
    m.rows = codes->shape[0];
    ASSIGN_OR_RETURN(m.cols, columns_of(*codes, per_word));
    m.codes = checkpoint_.data(*codes);
    RETURN_IF_ERROR(read_scales(m, "weight_scale", {m.rows, m.groups()}));
    RETURN_IF_ERROR(read_row_zeros(m));
    return read_order(optional_part("weight_g_idx"), m);
  }

  Status read_bytes(PackedMatrix& m) {
    ASSIGN_OR_RETURN(const TensorInfo* codes, part("weight"));
    RETURN_IF_ERROR(expect_matrix(*codes, StoredDType::kI8));
    m.rows = codes->shape[0];
    m.cols = codes->shape[1];
    m.codes = checkpoint_.data(*codes);
    RETURN_IF_ERROR(read_scales(m, "weight_scale", {m.rows, m.groups()}));
    RETURN_IF_ERROR(read_row_zeros(m));
    return read_order(optional_part("weight_g_idx"), m);
  }

  const Checkpoint& checkpoint_;
  const WeightPacking& form_;
  std::string module_;
  std::vector<std::string> parts_;
  std::vector<std::int32_t> order_;
};

// The module of a tensor with codes.
std::optional<std::string> module_of(const TensorInfo& tensor, Packing packing) {
  const std::string suffix = fmt::format(".{}", codes_name(packing));
  if (!tensor.name.ends_with(suffix)) return std::nullopt;
  if (packing == Packing::kPlainInt8 && tensor.dtype != StoredDType::kI8) return std::nullopt;
  return tensor.name.substr(0, tensor.name.size() - suffix.size());
}

// All matrices of a checkpoint, and the tensors that they do not use.
struct Contents {
  std::vector<FoundMatrix> matrices;
  Orders orders;
  std::vector<TensorInfo> others;
};

Result<Contents> read_contents(const Checkpoint& checkpoint, const WeightPacking& form) {
  Contents contents;
  std::set<std::string, std::less<>> parts;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    const auto module = module_of(tensor, form.packing);
    if (!module) continue;
    const std::string name = *module + ".weight";
    if (name != tensor.name && checkpoint.find(name) != nullptr) {
      return invalid_argument(fmt::format("{}: tensors {} and {} are both there; expected one",
                                          checkpoint.directory(), quote_text(tensor.name),
                                          quote_text(name)));
    }
    MatrixFinder finder(checkpoint, form, *module);
    ASSIGN_OR_RETURN(PackedMatrix matrix, finder.find());
    parts.insert(finder.parts().begin(), finder.parts().end());
    FoundMatrix& found = contents.matrices.emplace_back(FoundMatrix{*module, matrix});
    if (auto order = finder.take_order(); !order.empty()) {
      const std::string order_name = name + std::string(kOrderSuffix);
      if (checkpoint.find(order_name) != nullptr) {
        return invalid_argument(fmt::format("{}: tensor {} is not expected beside {}",
                                            checkpoint.directory(), quote_text(order_name),
                                            quote_text(tensor.name)));
      }
      found.order = &*contents.orders.try_emplace(std::move(order), 0).first;
      found.matrix.order = found.order->first;
    }
  }
  if (contents.matrices.empty()) {
    return not_found(
        fmt::format("{}: no tensor's name ends in \".{}\", the codes of a matrix as config.json: "
                    "quantization_config describes them",
                    checkpoint.directory(), codes_name(form.packing)));
  }
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    if (!parts.contains(tensor.name)) contents.others.push_back(tensor);
  }
  return contents;
}

// Chooses types and places. Returns the bytes of all blocks.
Result<std::size_t> place_blocks(const Checkpoint& checkpoint, ThreadPool& pool,
                                 Contents& contents) {
  std::vector<FoundMatrix>& matrices = contents.matrices;
  std::vector<Status> chosen(matrices.size());
  pool.parallel_for(static_cast<int>(matrices.size()), [&](int i) {
    FoundMatrix& found = matrices[static_cast<std::size_t>(i)];
    auto type = block_type(found.matrix);
    if (type) {
      found.type = *type;
    } else {
      chosen[static_cast<std::size_t>(i)] = std::move(type).error();
    }
  });
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    FoundMatrix& found = matrices[i];
    if (!chosen[i]) {
      return with_context(fmt::format("{}: {}", checkpoint.directory(), quote_text(found.module)),
                          std::move(chosen[i]).error());
    }
    found.offset = bytes;
    const auto row_bytes = static_cast<std::size_t>(bytes_of(found.type, found.matrix.cols));
    bytes += (static_cast<std::size_t>(found.matrix.rows) * row_bytes + kAlignedTo - 1) /
             kAlignedTo * kAlignedTo;
  }
  for (auto& [order, place] : contents.orders) {
    place = bytes;
    bytes += order.size() * sizeof(std::int32_t);
  }
  return bytes;
}

void repack(const FoundMatrix& found, ThreadPool& pool, std::span<std::byte> blocks) {
  const PackedMatrix& m = found.matrix;
  const std::int64_t row_bytes = bytes_of(found.type, m.cols);
  const std::int64_t bands = (m.rows + kRepackedRows - 1) / kRepackedRows;
  pool.parallel_for(static_cast<int>(bands), [&](int band) {
    const std::int64_t begin = band * kRepackedRows;
    repack_rows(m, found.type, begin, std::min(m.rows, begin + kRepackedRows),
                blocks.data() + found.offset + static_cast<std::size_t>(begin * row_bytes));
  });
  for (const std::span<const std::byte> part : {m.codes, m.scales, m.zeros}) release_pages(part);
}

}  // namespace

Result<Checkpoint> repack_checkpoint(Checkpoint checkpoint, const WeightPacking& form,
                                     ThreadPool& pool, Repacking repacking) {
  ASSIGN_OR_RETURN(Contents contents, read_contents(checkpoint, form));
  ASSIGN_OR_RETURN(const std::size_t bytes, place_blocks(checkpoint, pool, contents));
  ASSIGN_OR_RETURN(CheckpointFile blocks,
                   CheckpointFile::make(checkpoint.directory() + " (repacked matrices)", bytes,
                                        [&](std::span<std::byte> memory) {
                                          if (repacking == Repacking::kNamesOnly) return;
                                          for (const FoundMatrix& found : contents.matrices) {
                                            repack(found, pool, memory);
                                          }
                                          for (const auto& [order, place] : contents.orders) {
                                            std::memcpy(memory.data() + place, order.data(),
                                                        order.size() * sizeof(std::int32_t));
                                          }
                                        }));
  std::vector<TensorInfo> tensors = std::move(contents.others);
  const auto file = static_cast<std::int32_t>(checkpoint.files().size());
  for (const FoundMatrix& found : contents.matrices) {
    const PackedMatrix& m = found.matrix;
    tensors.push_back({found.module + ".weight",
                       stored_block_type(found.type),
                       {m.rows, m.cols},
                       file,
                       found.offset,
                       static_cast<std::uint64_t>(m.rows * bytes_of(found.type, m.cols))});
    if (found.order == nullptr) continue;
    tensors.push_back({found.module + ".weight" + std::string(kOrderSuffix),
                       StoredDType::kI32,
                       {m.cols},
                       file,
                       found.order->second,
                       static_cast<std::uint64_t>(m.cols) * sizeof(std::int32_t)});
  }
  const std::string directory = checkpoint.directory();
  std::vector<CheckpointFile> files = std::move(checkpoint).take_files();
  for (const CheckpointFile& source : files) {
    if (source.faulted()) return unavailable(source.path() + ": was truncated while it was read");
  }
  files.push_back(std::move(blocks));
  return Checkpoint::from_files(directory, std::move(files), std::move(tensors));
}

}  // namespace sluice
