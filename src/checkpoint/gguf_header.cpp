// The header is read once, from front to back. Counts in the file are never trusted for an
// allocation: a list grows only as its entries are found in the bytes.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "checkpoint/gguf.h"
#include "checkpoint/quote_text.h"

namespace sluice {
namespace {

constexpr std::uint64_t kMaxKeys = 65'536;
constexpr std::uint64_t kMaxTensors = 1'000'000;
constexpr std::uint64_t kMaxKeyBytes = 65'535;
constexpr std::uint64_t kMaxNameBytes = 64;
constexpr std::uint32_t kMaxRank = 4;
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint64_t kMaxAlignment = 65'536;
constexpr std::string_view kAlignmentKey = "general.alignment";

// Reads the bytes from front to back. A read beyond the end fails once and for all.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::uint64_t position() const { return position_; }
  std::span<const std::byte> from(std::uint64_t begin) const {
    return bytes_.subspan(static_cast<std::size_t>(begin),
                          static_cast<std::size_t>(position_ - begin));
  }

  bool skip(std::uint64_t count) {
    if (count > bytes_.size() - position_) return false;
    position_ += count;
    return true;
  }
  template <class T>
  bool number(T& value) {
    const std::uint64_t begin = position_;
    if (!skip(sizeof(value))) return false;
    std::memcpy(&value, bytes_.data() + begin, sizeof(value));
    return true;
  }
  bool text(std::string_view& value) {
    std::uint64_t length = 0;
    if (!number(length)) return false;
    const std::uint64_t begin = position_;
    if (!skip(length)) return false;
    value = {reinterpret_cast<const char*>(bytes_.data()) + begin,
             static_cast<std::size_t>(length)};
    return true;
  }

 private:
  std::span<const std::byte> bytes_;
  std::uint64_t position_ = 0;
};

Error cut_off(std::string_view field) {
  return invalid_argument(fmt::format(
      "{} reaches beyond the end of the file; was the file or its download cut off?", field));
}

struct Counts {
  std::uint64_t tensors = 0;
  std::uint64_t keys = 0;
};

Result<Counts> read_counts(Cursor& cursor, std::span<const std::byte> file) {
  const std::string_view start(reinterpret_cast<const char*>(file.data()),
                               std::min<std::size_t>(file.size(), 32));
  // A clone without Git LFS has a pointer file in place of a large file.
  if (start.starts_with("version https://git-lfs")) {
    return invalid_argument(
        "is a Git LFS pointer, not the file itself; fetch that with 'git lfs pull' or 'hf "
        "download'");
  }
  if (!start.starts_with("GGUF")) {
    return invalid_argument("does not begin with \"GGUF\"; not a GGUF file");
  }
  std::uint32_t version = 0;
  Counts counts;
  if (!cursor.skip(4) || !cursor.number(version)) return cut_off("version");
  if (version != 0 && (version & 0xFFFFU) == 0) {
    return unsupported("is a big-endian file; expected a little-endian one");
  }
  if (version != 2 && version != 3) {
    return unsupported(fmt::format(
        "version {} is not supported; expected 2 or 3: convert the model again", version));
  }
  if (!cursor.number(counts.tensors)) return cut_off("tensor count");
  if (!cursor.number(counts.keys)) return cut_off("metadata count");
  if (counts.tensors > kMaxTensors) {
    return invalid_argument(
        fmt::format("tensor count {} is beyond the limit of {}", counts.tensors, kMaxTensors));
  }
  if (counts.keys > kMaxKeys) {
    return invalid_argument(
        fmt::format("metadata count {} is beyond the limit of {}", counts.keys, kMaxKeys));
  }
  return counts;
}

Status check_bools(std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) {
    if (byte > std::byte{1}) {
      return invalid_argument(
          fmt::format("bool with the byte {}; expected 0 or 1", std::to_integer<unsigned>(byte)));
    }
  }
  return {};
}

// Reads `value.count` values of `value.type` into value.bytes.
Status read_elements(Cursor& cursor, GgufValue& value) {
  const std::uint64_t begin = cursor.position();
  const std::uint64_t size = gguf_value_bytes(value.type);
  if (value.type == GgufValueType::kText) {
    std::string_view ignored;
    for (std::uint64_t i = 0; i < value.count; ++i) {
      if (!cursor.text(ignored)) return cut_off("text");
    }
  } else if (value.count > std::numeric_limits<std::uint64_t>::max() / size ||
             !cursor.skip(value.count * size)) {
    return cut_off("value");
  }
  value.bytes = cursor.from(begin);
  if (value.type == GgufValueType::kBool) return check_bools(value.bytes);
  return {};
}

Status read_type(Cursor& cursor, GgufValueType& type) {
  std::uint32_t number = 0;
  if (!cursor.number(number)) return cut_off("type");
  type = static_cast<GgufValueType>(number);
  if (gguf_value_type_name(type).empty()) {
    return invalid_argument(fmt::format("unknown type {}; expected 0 to 12", number));
  }
  return {};
}

Result<GgufValue> read_value(Cursor& cursor) {
  GgufValue value;
  RETURN_IF_ERROR(read_type(cursor, value.type));
  if (value.type == GgufValueType::kArray) {
    value.is_array = true;
    RETURN_IF_ERROR(read_type(cursor, value.type));
    if (value.type == GgufValueType::kArray) {
      return unsupported("an array of arrays is not supported");
    }
    if (!cursor.number(value.count)) return cut_off("length");
  }
  RETURN_IF_ERROR(read_elements(cursor, value));
  return value;
}

Result<GgufMetadata> read_metadata(Cursor& cursor, std::uint64_t count) {
  std::vector<GgufMetadata::Entry> entries;
  for (std::uint64_t i = 0; i < count; ++i) {
    GgufMetadata::Entry entry;
    if (!cursor.text(entry.key)) return cut_off(fmt::format("metadata key {} of {}", i + 1, count));
    if (entry.key.empty() || entry.key.size() > kMaxKeyBytes) {
      return invalid_argument(
          fmt::format("metadata key {} of {}: is {} bytes long; expected 1 to {}", i + 1, count,
                      entry.key.size(), kMaxKeyBytes));
    }
    auto value = read_value(cursor);
    if (!value) {
      return with_context(fmt::format("metadata {}", quote_text(entry.key)), value.error());
    }
    entry.value = *value;
    entries.push_back(entry);
  }
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.key < b.key; });
  const auto twice = std::adjacent_find(
      entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.key == b.key; });
  if (twice != entries.end()) {
    return invalid_argument(fmt::format("metadata {}: is given twice", quote_text(twice->key)));
  }
  return GgufMetadata(std::move(entries));
}

// The number of bytes of shape x type. Errors do not name the tensor.
Result<std::uint64_t> byte_count(const GgufTensor& tensor, const GgufTensorTypeInfo& info) {
  const std::int64_t columns = tensor.shape.back();
  if (columns % info.elements != 0) {
    return invalid_argument(fmt::format("rows of {} elements are no multiple of a {} block of {}",
                                        columns, info.name, info.elements));
  }
  std::int64_t bytes = info.bytes;
  bool fits = !__builtin_mul_overflow(bytes, columns / info.elements, &bytes);
  for (std::size_t i = 0; i + 1 < tensor.shape.size(); ++i) {
    fits = fits && !__builtin_mul_overflow(bytes, tensor.shape[i], &bytes);
  }
  if (!fits) return invalid_argument("takes more than 2^63 bytes");
  return static_cast<std::uint64_t>(bytes);
}

// Everything after the name. `offset` is relative to the data until place_tensors().
Status read_tensor(Cursor& cursor, GgufTensor& tensor) {
  std::uint32_t rank = 0;
  if (!cursor.number(rank)) return cut_off("rank");
  if (rank == 0 || rank > kMaxRank) {
    return invalid_argument(fmt::format("rank {}; expected 1 to {}", rank, kMaxRank));
  }
  for (std::uint32_t i = 0; i < rank; ++i) {
    std::uint64_t dim = 0;
    if (!cursor.number(dim)) return cut_off("shape");
    if (dim == 0 || dim > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return invalid_argument(fmt::format("dimension {}; expected 1 to 2^63 - 1", dim));
    }
    tensor.shape.push_back(static_cast<std::int64_t>(dim));
  }
  std::reverse(tensor.shape.begin(), tensor.shape.end());
  std::uint32_t type = 0;
  if (!cursor.number(type)) return cut_off("type");
  tensor.type = static_cast<GgufTensorType>(type);
  const GgufTensorTypeInfo* info = gguf_tensor_type_info(tensor.type);
  if (info == nullptr) {
    return unsupported(fmt::format("type {} is not known; expected {}", type, kGgufModelTypes));
  }
  if (!cursor.number(tensor.offset)) return cut_off("offset");
  ASSIGN_OR_RETURN(tensor.bytes, byte_count(tensor, *info));
  return {};
}

Result<std::vector<GgufTensor>> read_tensors(Cursor& cursor, std::uint64_t count,
                                             std::int32_t file_index) {
  std::vector<GgufTensor> tensors;
  for (std::uint64_t i = 0; i < count; ++i) {
    GgufTensor tensor;
    tensor.file = file_index;
    if (!cursor.text(tensor.name)) return cut_off(fmt::format("tensor {} of {}", i + 1, count));
    if (tensor.name.empty() || tensor.name.size() > kMaxNameBytes) {
      return invalid_argument(fmt::format("tensor {} of {}: name of {} bytes; expected 1 to {}",
                                          i + 1, count, tensor.name.size(), kMaxNameBytes));
    }
    const Status read = read_tensor(cursor, tensor);
    if (!read) return with_context(fmt::format("tensor {}", quote_text(tensor.name)), read.error());
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

Result<std::uint64_t> alignment_of(const GgufMetadata& metadata) {
  ASSIGN_OR_RETURN(const auto given, metadata.whole_number(kAlignmentKey));
  const std::uint64_t alignment = given.value_or(kDefaultAlignment);
  if (alignment < 8 || alignment > kMaxAlignment || !std::has_single_bit(alignment)) {
    return invalid_argument(
        fmt::format("metadata \"{}\": is {}; expected a power of two from 8 to {}", kAlignmentKey,
                    alignment, kMaxAlignment));
  }
  return alignment;
}

// Makes offsets relative to the file, and checks each range.
Status place_tensors(std::vector<GgufTensor>& tensors, std::uint64_t header_end,
                     std::uint64_t alignment, std::uint64_t file_size) {
  const std::uint64_t start = (header_end + alignment - 1) / alignment * alignment;
  const std::uint64_t data = file_size > start ? file_size - start : 0;
  for (GgufTensor& tensor : tensors) {
    if (tensor.offset % alignment != 0) {
      return invalid_argument(fmt::format("tensor {}: offset {} is no multiple of {}",
                                          quote_text(tensor.name), tensor.offset, alignment));
    }
    if (tensor.offset > data || tensor.bytes > data - tensor.offset) {
      return invalid_argument(fmt::format(
          "tensor {}: {} bytes from {} lie outside the {} bytes of data; was the file or its "
          "download cut off?",
          quote_text(tensor.name), tensor.bytes, tensor.offset, data));
    }
    tensor.offset += start;
  }
  return {};
}

Status check_overlaps(std::span<const GgufTensor> tensors) {
  std::vector<const GgufTensor*> by_offset;
  by_offset.reserve(tensors.size());
  for (const GgufTensor& tensor : tensors) by_offset.push_back(&tensor);
  std::sort(by_offset.begin(), by_offset.end(),
            [](const GgufTensor* a, const GgufTensor* b) { return a->offset < b->offset; });
  for (std::size_t i = 1; i < by_offset.size(); ++i) {
    const GgufTensor& previous = *by_offset[i - 1];
    if (by_offset[i]->offset < previous.offset + previous.bytes) {
      return invalid_argument(fmt::format("tensor {}: its bytes overlap those of tensor {}",
                                          quote_text(by_offset[i]->name),
                                          quote_text(previous.name)));
    }
  }
  return {};
}

Status sort_by_name(std::vector<GgufTensor>& tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const GgufTensor& a, const GgufTensor& b) { return a.name < b.name; });
  const auto twice =
      std::adjacent_find(tensors.begin(), tensors.end(),
                         [](const GgufTensor& a, const GgufTensor& b) { return a.name == b.name; });
  if (twice == tensors.end()) return {};
  return invalid_argument(fmt::format("tensor {}: is given twice", quote_text(twice->name)));
}

}  // namespace

Result<GgufHeader> parse_gguf(std::span<const std::byte> file, std::int32_t file_index) {
  Cursor cursor(file);
  GgufHeader header;
  ASSIGN_OR_RETURN(const Counts counts, read_counts(cursor, file));
  ASSIGN_OR_RETURN(header.metadata, read_metadata(cursor, counts.keys));
  ASSIGN_OR_RETURN(const std::uint64_t alignment, alignment_of(header.metadata));
  ASSIGN_OR_RETURN(header.tensors, read_tensors(cursor, counts.tensors, file_index));
  header.bytes = cursor.position();
  RETURN_IF_ERROR(place_tensors(header.tensors, cursor.position(), alignment, file.size()));
  RETURN_IF_ERROR(check_overlaps(header.tensors));
  RETURN_IF_ERROR(sort_by_name(header.tensors));
  return header;
}

}  // namespace sluice
