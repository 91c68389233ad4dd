#include "tests/parity/lora_case.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "base/check.h"
#include "device/cpu/reference/elements.h"
#include "device/lora_batch.h"

namespace sluice::parity {
namespace {

constexpr std::int64_t kOtherLayers = 5;  // entries of a slot that belong to other matmuls

std::size_t lora_elements(std::int64_t a, std::int64_t b) {
  return static_cast<std::size_t>(a * b);
}

// Segments of any length, in any order, their tokens in any order.
void shuffle_segments(std::vector<std::int32_t>& list, std::vector<LoraSegment>& segments,
                      SplitMix64& rng) {
  std::vector<LoraSegment> cut;
  for (const LoraSegment& segment : segments) {
    for (std::int32_t i = segment.count - 1; i > 0; --i) {
      const auto other = static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(i) + 1));
      std::swap(list[static_cast<std::size_t>(segment.first + i)],
                list[static_cast<std::size_t>(segment.first + other)]);
    }
    for (std::int32_t begin = 0; begin < segment.count;) {
      const auto left = static_cast<std::uint64_t>(segment.count - begin);
      const auto count = static_cast<std::int32_t>(1 + rng.below(left));
      cut.push_back({segment.first + begin, count, segment.slot});
      begin += count;
    }
  }
  for (std::size_t i = cut.size(); i > 1; --i) std::swap(cut[i - 1], cut[rng.below(i)]);
  segments = cut;
}

}  // namespace

LoraAdapter random_adapter(const LoraShape& shape, const std::vector<std::int32_t>& ranks,
                           SplitMix64& rng) {
  CHECK(ranks.size() == shape.widths.size());
  LoraAdapter adapter(ranks.size());
  for (std::size_t m = 0; m < ranks.size(); ++m) {
    LoraModule& module = adapter[m];
    module.rank = ranks[m];
    module.scale = 0.25F + static_cast<float>(rng.uniform()) * 2.0F;
    module.a = round_to(shape.dtype, random_floats(rng, lora_elements(module.rank, shape.depth)));
    module.b =
        round_to(shape.dtype, random_floats(rng, lora_elements(module.rank, shape.widths[m])));
    if (rng.below(2) == 0) module.gains = random_floats(rng, lora_elements(2, shape.widths[m]));
  }
  return adapter;
}

LoraSite::LoraSite(DeviceMemory& memory, const LoraShape& shape, std::int32_t capacity,
                   std::int32_t num_slots, std::size_t region_bytes)
    : memory_(memory), shape_(shape), num_slots_(num_slots), region_bytes_(region_bytes) {
  const auto modules = static_cast<std::int32_t>(shape.widths.size());
  width_ = std::accumulate(shape.widths.begin(), shape.widths.end(), std::int64_t{0});
  entries_.resize(lora_elements(num_slots, modules + kOtherLayers));
  // Entries of other matmuls and of empty slots are invalid: the ops must not read them.
  for (LoraEntry& entry : entries_) entry = {1, 1, -1, 0.0F};
  region_ = static_cast<std::byte*>(memory.take(region_bytes));
  device_entries_ = memory.put(entries_);
  list_ = static_cast<std::int32_t*>(memory.take(lora_elements(capacity, sizeof(std::int32_t))));
  segments_ = static_cast<LoraSegment*>(memory.take(lora_elements(capacity, sizeof(LoraSegment))));
  count_ = memory.put(std::vector<std::int32_t>{0});
  shrink_.x = memory.take_matrix(capacity, shape.depth, shape.x, (shape.depth + 15) / 8 * 8);
  shrink_.table = {region_,        device_entries_ + 2, modules + kOtherLayers, num_slots, modules,
                   shape.max_rank, shape.dtype};
  shrink_.batch = {list_, segments_, {count_, capacity}};
  const std::int32_t parts = LoraHidden::parts_of(shape.depth);
  const std::int64_t hidden = std::int64_t{parts} * capacity * modules * shape.max_rank;
  shrink_.h = {static_cast<float*>(memory.take(lora_elements(hidden, sizeof(float)))), parts,
               capacity};
  expand_.h = shrink_.h;
  expand_.table = shrink_.table;
  expand_.batch = shrink_.batch;
  expand_.out = memory.take_matrix(capacity, width_, DType::kF32, width_ + 5);
  std::copy(shape.widths.begin(), shape.widths.end(), expand_.widths);
}

void LoraSite::load(std::int32_t slot, const LoraAdapter& adapter, SplitMix64& placement) {
  const auto put = [&](const std::vector<float>& values, DType dtype) {
    used_ = (used_ + 63) / 64 * 64 + 64 * placement.below(3);
    std::vector<std::byte> bytes(values.size() * size_of(dtype));
    CHECK(used_ + bytes.size() <= region_bytes_);
    for (std::size_t i = 0; i < values.size(); ++i) {
      reference::store_element(bytes.data(), dtype, static_cast<std::int64_t>(i), values[i]);
    }
    memory_.upload(region_ + used_, bytes);
    const std::size_t offset = used_;
    used_ += bytes.size();
    return static_cast<std::int64_t>(offset);
  };
  for (std::size_t m = 0; m < adapter.size(); ++m) {
    const LoraModule& module = adapter[m];
    LoraEntry& entry = entries_[lora_elements(slot, shrink_.table.stride) + 2 + m];
    entry = {put(module.a, shape_.dtype), put(module.b, shape_.dtype), module.rank, module.scale};
    if (!module.gains.empty()) entry.gain = put(module.gains, DType::kF32);
  }
  memory_.upload(device_entries_, std::as_bytes(std::span(entries_)));
}

void LoraSite::unload_all() {
  for (LoraEntry& entry : entries_) entry = {1, 1, -1, 0.0F};
  memory_.upload(device_entries_, std::as_bytes(std::span(entries_)));
  memory_.upload(region_, std::vector<std::byte>(region_bytes_, std::byte{0xFF}));
  used_ = 0;
}

void LoraSite::set_batch(const std::vector<float>& x, const std::vector<float>& out,
                         const std::vector<std::int32_t>& slots, SplitMix64* rng) {
  const std::int32_t capacity = shrink_.h.capacity;
  tokens_ = static_cast<std::int32_t>(slots.size());
  CHECK(tokens_ <= capacity && out.size() == lora_elements(tokens_, width_));
  std::vector<std::int32_t> list(static_cast<std::size_t>(capacity), -1);
  std::vector<LoraSegment> segments(static_cast<std::size_t>(capacity), {-1, -1, -1});
  const auto count = LoraGrouping(num_slots_).write(slots, list, segments);
  segments.resize(static_cast<std::size_t>(count));
  if (rng != nullptr) shuffle_segments(list, segments, *rng);
  const auto in_use = static_cast<std::int32_t>(segments.size());
  memory_.upload(list_, std::as_bytes(std::span(list)));
  memory_.upload(segments_, std::as_bytes(std::span(segments)));
  memory_.upload(count_, std::as_bytes(std::span(&in_use, 1)));
  const auto fill = [&](const TensorView& matrix, const std::vector<float>& values) {
    const std::int64_t cols = matrix.dims[1];
    std::vector<std::byte> bytes(
        lora_elements(capacity, matrix.strides[0]) * size_of(matrix.dtype) -
            lora_elements(matrix.strides[0] - cols, 1) * size_of(matrix.dtype),
        std::byte{0xFF});
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i) / cols;
      reference::store_element(bytes.data(), matrix.dtype,
                               row * matrix.strides[0] + static_cast<std::int64_t>(i) % cols,
                               values[i]);
    }
    memory_.upload(matrix.data, bytes);
  };
  fill(shrink_.x, x);
  fill(expand_.out, out);
  memory_.upload(shrink_.h.data,
                 std::vector<std::byte>(lora_elements(std::int64_t{shrink_.h.parts} * capacity,
                                                      shrink_.table.num_modules) *
                                            lora_elements(shape_.max_rank, sizeof(float)),
                                        std::byte{0xFF}));
}

void LoraSite::run(Ops& ops) const {
  ops.run(shrink_);
  ops.run(expand_);
}

TensorView LoraSite::out() const {
  return matrix_view(expand_.out.data, DType::kF32, tokens_, width_, expand_.out.strides[0]);
}

}  // namespace sluice::parity
