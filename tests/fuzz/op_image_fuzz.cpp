// Stored lists of ops, decoded for an arena of a few buffers. Every pointer of an accepted list
// lies in a buffer, and every tensor ends in its buffer. Encoded and decoded again, the lists are
// equal.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "device/cpu/cpu_device.h"
#include "device/op_fields.h"
#include "device/op_image.h"

namespace {

struct Machine {
  std::unique_ptr<sluice::Device> device = *sluice::make_cpu_device({.threads = 1});
  sluice::Arena arena = make_arena(*device);

  static sluice::Arena make_arena(sluice::Device& device) {
    sluice::ArenaPlan plan;
    plan.add(sluice::RegionKind::kWeights, "w", 4096);
    plan.add(sluice::RegionKind::kInputs, "i", 256);
    plan.add(sluice::RegionKind::kWorkspace, "x", 1024);
    plan.finish(device.traits().granularity);
    auto arena = sluice::Arena::create(device, std::move(plan));
    CHECK(arena.has_value());
    return *std::move(arena);
  }
};

// Buffers are read from the image only by name, so the fuzzer gets them for free.
std::vector<std::byte> with_buffers(std::span<const std::byte> ops) {
  std::vector<std::byte> image;
  const auto u32 = [&](std::uint32_t value) {
    const auto raw = std::as_bytes(std::span(&value, 1));
    image.insert(image.end(), raw.begin(), raw.end());
  };
  u32(3);
  for (const auto& [region, name] : {std::pair(0U, 'w'), std::pair(2U, 'i'), std::pair(3U, 'x')}) {
    u32(region);
    u32(1);
    image.push_back(std::byte(name));
  }
  image.insert(image.end(), ops.begin(), ops.end());
  return image;
}

void check_tensor(const sluice::TensorView& tensor, const sluice::Arena& arena) {
  if (tensor.data == nullptr) return;
  std::int64_t last = 0;
  for (std::int32_t i = 0; i < tensor.rank; ++i) last += (tensor.dims[i] - 1) * tensor.strides[i];
  const auto bytes = (last + 1) * static_cast<std::int64_t>(sluice::size_of(tensor.dtype));
  const auto first = arena.find(tensor.data);
  const auto end = arena.find(static_cast<const std::byte*>(tensor.data) + bytes - 1);
  CHECK(first && end && first->region == end->region && first->buffer == end->buffer);
}

void check(const sluice::OpList& list, const sluice::Arena& arena) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    const sluice::OpCall call = list[i];
    for (const sluice::OpField& field : sluice::op_fields(call.op)) {
      if (field.kind != sluice::FieldKind::kPointer) continue;
      const void* address = nullptr;
      std::memcpy(&address, call.params.data() + field.offset, sizeof(address));
      CHECK(address == nullptr || arena.find(address).has_value());
    }
    for (const std::size_t offset : sluice::op_tensors(call.op)) {
      sluice::TensorView tensor;
      std::memcpy(static_cast<void*>(&tensor), call.params.data() + offset, sizeof(tensor));
      check_tensor(tensor, arena);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Machine machine;
  const auto input = std::as_bytes(std::span(data, size));
  for (const bool given : {false, true}) {
    const std::vector<std::byte> image =
        given ? with_buffers(input) : std::vector<std::byte>(input.begin(), input.end());
    const auto lists = sluice::decode_op_lists(image, machine.arena);
    if (!lists) {
      CHECK(!lists.error().message.empty());
      continue;
    }
    std::vector<const sluice::OpList*> pointers;
    for (const sluice::OpList& list : *lists) {
      check(list, machine.arena);
      pointers.push_back(&list);
    }
    const auto again = sluice::encode_op_lists(pointers, machine.arena);
    CHECK(again.has_value());
    const auto same = sluice::decode_op_lists(*again, machine.arena);
    CHECK(same.has_value() && *same == *lists);
  }
  return 0;
}
