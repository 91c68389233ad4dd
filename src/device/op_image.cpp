// Image: buffers (count, then region and name of each), count of lists; per list the count of ops;
// per op its id and its changed cells as (distance from the last changed cell, difference), ended
// by a distance of 0. A field is a cell of 64 bits; a pointer is two: buffer + 1 (0: null), offset.
#include "device/op_image.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/byte_stream.h"
#include "base/check.h"
#include "base/content_hash.h"
#include "device/op_fields.h"

namespace sluice {
namespace {

constexpr std::uint32_t kImageVersion = 1;
constexpr std::uint32_t kMaxBuffers = 1 << 16;
constexpr std::uint64_t kMaxLists = 1 << 12;
// In one list. An op takes at least two bytes, so an image bounds what decoding allocates.
constexpr std::uint64_t kMaxOps = 1 << 20;

using Cells = std::vector<std::uint64_t>;

std::uint64_t zigzag(std::uint64_t difference) {
  return (difference << 1) ^ (0 - (difference >> 63));
}
std::uint64_t unzigzag(std::uint64_t value) { return (value >> 1) ^ (0 - (value & 1)); }

// The cells that an op is stored as the difference from.
class References {
 public:
  void begin_list() {
    before_ = std::move(current_);
    current_.clear();
    last_of_id_.fill(-1);
  }
  // The op at the same place of the list before, else the last one with its id, else zeros.
  const Cells& find(OpId op) const {
    const std::size_t index = current_.size();
    if (index < before_.size() && before_[index].first == op) return before_[index].second;
    const std::ptrdiff_t last = last_of_id_[static_cast<std::size_t>(op)];
    return last >= 0 ? current_[static_cast<std::size_t>(last)].second : none_;
  }
  void add(OpId op, Cells cells) {
    last_of_id_[static_cast<std::size_t>(op)] = static_cast<std::ptrdiff_t>(current_.size());
    current_.emplace_back(op, std::move(cells));
  }

 private:
  std::vector<std::pair<OpId, Cells>> before_;
  std::vector<std::pair<OpId, Cells>> current_;
  std::array<std::ptrdiff_t, kNumOps + 1> last_of_id_{};
  Cells none_;
};

std::uint64_t cell_or_zero(const Cells& cells, std::size_t index) {
  return index < cells.size() ? cells[index] : 0;
}

std::size_t count_cells(OpId op) {
  std::size_t count = 0;
  for (const OpField& field : op_fields(op)) count += field.kind == FieldKind::kPointer ? 2 : 1;
  return count;
}

// ---------------------------------------------------------------- encoding

class ImageEncoder {
 public:
  explicit ImageEncoder(const Arena& arena) : arena_(arena) {}

  Status add(const OpList& list) {
    references_.begin_list();
    ops_.varint(list.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      ASSIGN_OR_RETURN(Cells cells, cells_of(list[i], i));
      write(list[i].op, cells);
      references_.add(list[i].op, std::move(cells));
    }
    return {};
  }

  std::vector<std::byte> finish(std::size_t num_lists) const {
    ByteWriter image;
    image.u32(static_cast<std::uint32_t>(buffers_.size()));
    for (const ArenaPlace& buffer : buffers_) {
      image.u32(static_cast<std::uint32_t>(buffer.region));
      image.text(buffer.buffer);
    }
    image.varint(num_lists);
    image.bytes(ops_.written());
    return image.take();
  }

 private:
  Result<Cells> cells_of(const OpCall& call, std::size_t index) {
    Cells cells;
    for (const OpField& field : op_fields(call.op)) {
      std::uint64_t value = 0;
      std::memcpy(&value, call.params.data() + field.offset, field.bytes);
      if (field.kind != FieldKind::kPointer) {
        cells.push_back(value);
        continue;
      }
      const void* address = nullptr;
      std::memcpy(&address, call.params.data() + field.offset, sizeof(address));
      const auto place = arena_.find(address);
      if (address != nullptr && !place) {
        return internal_error(fmt::format("op {} ({}): {} is {}, which lies in no buffer", index,
                                          op_info(call.op).name, field.name, address));
      }
      cells.push_back(place ? buffer_index(*place) + 1 : 0);
      cells.push_back(place ? place->offset : 0);
    }
    return cells;
  }

  std::uint64_t buffer_index(const ArenaPlace& place) {
    const auto [entry, is_new] =
        indices_.try_emplace(std::pair(place.region, place.buffer), buffers_.size());
    if (is_new) buffers_.push_back({place.region, place.buffer, 0});
    return entry->second;
  }

  void write(OpId op, const Cells& cells) {
    ops_.varint(static_cast<std::uint64_t>(op));
    const Cells& reference = references_.find(op);
    std::size_t written = 0;  // cells, up to the last changed one
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::uint64_t difference = cells[i] - cell_or_zero(reference, i);
      if (difference == 0) continue;
      ops_.varint(i + 1 - written);
      ops_.varint(zigzag(difference));
      written = i + 1;
    }
    ops_.varint(0);
  }

  const Arena& arena_;
  References references_;
  std::map<std::pair<RegionKind, std::string_view>, std::uint64_t> indices_;
  std::vector<ArenaPlace> buffers_;
  ByteWriter ops_;
};

// ---------------------------------------------------------------- decoding

class ImageDecoder {
 public:
  ImageDecoder(std::span<const std::byte> image, const Arena& arena)
      : reader_(image), arena_(arena) {}

  Result<std::vector<OpList>> run() {
    RETURN_IF_ERROR(read_buffers());
    const std::uint64_t num_lists = reader_.varint();
    if (!reader_.ok() || num_lists > kMaxLists) return truncated();
    std::vector<OpList> lists;
    for (std::uint64_t i = 0; i < num_lists; ++i) {
      OpList list;
      if (auto read = read_list(list); !read) {
        return with_context(fmt::format("list {}", i), std::move(read).error());
      }
      lists.push_back(std::move(list));
    }
    if (reader_.left() != 0) return invalid_argument("there are bytes behind the last list");
    return lists;
  }

 private:
  struct Buffer {
    std::byte* address = nullptr;
    std::size_t bytes = 0;
  };
  // A pointer among the parameters of the op that is being read.
  struct Pointer {
    std::size_t offset = 0;  // in the parameters
    std::uint64_t room = 0;  // bytes from the address to the end of its buffer
  };

  static Error truncated() { return invalid_argument("the lists of ops end too early"); }

  Status read_buffers() {
    const std::uint32_t count = reader_.u32();
    if (count > kMaxBuffers) return truncated();
    for (std::uint32_t i = 0; i < count && reader_.ok(); ++i) {
      const std::uint32_t region = reader_.u32();
      const std::string_view name = reader_.text();
      if (!reader_.ok() || region >= kNumRegions) return truncated();
      ASSIGN_OR_RETURN(const Buffer buffer, find_buffer(static_cast<RegionKind>(region), name));
      buffers_.push_back(buffer);
    }
    return reader_.ok() ? Status() : truncated();
  }

  Result<Buffer> find_buffer(RegionKind region, std::string_view name) {
    const std::vector<BufferPlan>& buffers = arena_.plan().region(region).buffers;
    auto& by_name = by_name_[static_cast<std::size_t>(region)];
    if (by_name.empty()) {
      for (const BufferPlan& buffer : buffers) by_name.emplace(buffer.name, &buffer);
    }
    if (const auto found = by_name.find(name); found != by_name.end()) {
      return Buffer{arena_.region_base(region) + found->second->offset, found->second->bytes};
    }
    return invalid_argument(
        fmt::format("the arena has no buffer '{}' in its region {}", name, region_name(region)));
  }

  Status read_list(OpList& list) {
    references_.begin_list();
    const std::uint64_t num_ops = reader_.varint();
    if (!reader_.ok() || num_ops > kMaxOps) return truncated();
    for (std::uint64_t i = 0; i < num_ops; ++i) {
      const std::uint64_t id = reader_.varint();
      if (!reader_.ok()) return truncated();
      if (id == 0 || id > kNumOps) {
        return invalid_argument(fmt::format("op {} has the unknown id {}", i, id));
      }
      const auto op = static_cast<OpId>(id);
      ASSIGN_OR_RETURN(Cells cells, read_cells(op));
      if (auto added = append(op, cells, list); !added) {
        return with_context(fmt::format("op {} ({})", i, op_info(op).name),
                            std::move(added).error());
      }
      references_.add(op, std::move(cells));
    }
    return {};
  }

  Result<Cells> read_cells(OpId op) {
    Cells cells = references_.find(op);
    cells.resize(count_cells(op));
    std::uint64_t read = 0;
    while (true) {
      const std::uint64_t distance = reader_.varint();
      if (!reader_.ok()) return truncated();
      if (distance == 0) return cells;
      if (distance > cells.size() - read) return truncated();
      read += distance;
      cells[read - 1] += unzigzag(reader_.varint());
    }
  }

  Status append(OpId op, const Cells& cells, OpList& list) {
    std::vector<std::byte>& params = params_;
    params.assign(op_info(op).params_bytes, std::byte{0});
    pointers_.clear();
    std::size_t cell = 0;
    for (const OpField& field : op_fields(op)) {
      std::byte* target = params.data() + field.offset;
      if (field.kind != FieldKind::kPointer) {
        const std::uint64_t value = cells[cell++];
        if (field.bytes < sizeof(value) && value >> (8 * field.bytes) != 0) {
          return invalid_argument(field.name + " is too large");
        }
        std::memcpy(target, &value, field.bytes);
        continue;
      }
      const std::uint64_t buffer = cells[cell];
      const std::uint64_t offset = cells[cell + 1];
      cell += 2;
      const std::byte* address = nullptr;
      if (buffer != 0) {
        if (buffer > buffers_.size() || offset >= buffers_[buffer - 1].bytes) {
          return invalid_argument(field.name + " lies in no buffer");
        }
        address = buffers_[buffer - 1].address + offset;
        pointers_.push_back({field.offset, buffers_[buffer - 1].bytes - offset});
      } else if (offset != 0) {
        return invalid_argument(field.name + " lies in no buffer");
      }
      std::memcpy(target, &address, sizeof(address));
    }
    RETURN_IF_ERROR(check_tensors(op, params));
    return list.append_bytes(op, params);
  }

  // The fields come in the order of their offsets, and so do the tensors.
  Status check_tensors(OpId op, std::span<const std::byte> params) const {
    auto pointer = pointers_.begin();
    for (const std::size_t offset : op_tensors(op)) {
      TensorView tensor;
      std::memcpy(static_cast<void*>(&tensor), params.data() + offset, sizeof(tensor));
      if (tensor.data == nullptr) continue;
      pointer = std::find_if(pointer, pointers_.end(), [&](const Pointer& p) {
        return p.offset == offset + offsetof(TensorView, data);
      });
      CHECK(pointer != pointers_.end());
      RETURN_IF_ERROR(check_tensor(tensor, pointer->room));
    }
    return {};
  }

  // `room`: bytes from the tensor's begin to the end of its buffer.
  static Status check_tensor(const TensorView& tensor, std::uint64_t room) {
    const ElementBlock block = block_of(tensor.dtype);
    if (block.bytes == 0 || tensor.rank < 1 || tensor.rank > 4) {
      return invalid_argument("a tensor has no known type or rank");
    }
    std::uint64_t elements = 1;  // from the first to the last
    for (std::int32_t i = 0; i < tensor.rank; ++i) {
      const std::int64_t dim = tensor.dims[i];
      const std::int64_t stride = tensor.strides[i];
      std::uint64_t more = 0;
      const bool positive = dim > 0 && stride >= 0;
      if (!positive || __builtin_mul_overflow(dim - 1, stride, &more) ||
          __builtin_add_overflow(elements, more, &elements)) {
        return invalid_argument("a tensor has a wrong shape");
      }
    }
    std::uint64_t bytes = 0;
    const std::uint64_t blocks = (elements - 1) / static_cast<std::uint64_t>(block.elements) + 1;
    if (__builtin_mul_overflow(blocks, static_cast<std::uint64_t>(block.bytes), &bytes) ||
        bytes > room) {
      return invalid_argument("a tensor ends behind its buffer");
    }
    return {};
  }

  ByteReader reader_;
  const Arena& arena_;
  std::vector<Buffer> buffers_;
  std::array<std::unordered_map<std::string_view, const BufferPlan*>, kNumRegions> by_name_;
  References references_;
  std::vector<std::byte> params_;  // of the op that is being read
  std::vector<Pointer> pointers_;
};

}  // namespace

Result<std::vector<std::byte>> encode_op_lists(std::span<const OpList* const> lists,
                                               const Arena& arena) {
  ImageEncoder encoder(arena);
  for (const OpList* list : lists) RETURN_IF_ERROR(encoder.add(*list));
  return encoder.finish(lists.size());
}

Result<std::vector<OpList>> decode_op_lists(std::span<const std::byte> image, const Arena& arena) {
  return ImageDecoder(image, arena).run();
}

Hash128 op_image_identity() {
  ContentHasher hasher;
  hasher.update_part(fmt::format("op image {}", kImageVersion));
  for (std::size_t id = 1; id <= kNumOps; ++id) {
    const auto op = static_cast<OpId>(id);
    hasher.update_part(op_info(op).name);
    for (const OpField& field : op_fields(op)) {
      hasher.update_part(fmt::format("{} {} {} {} {}", field.name, static_cast<int>(field.kind),
                                     static_cast<int>(field.type), field.offset, field.bytes));
    }
  }
  return hasher.digest();
}

}  // namespace sluice
