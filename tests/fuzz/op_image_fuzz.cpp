// Images of lists of ops, as a snapshot may hold them: the input itself, and a right image with
// bytes changed by the input. Whatever decodes points into the arena alone: encoding, which refuses
// any other pointer, gives an image that decodes to the same lists.
#include "device/op_image.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "device/device.h"

namespace {

using namespace sluice;

constexpr std::size_t kGranularity = std::size_t{64} << 10;

// Gives addresses; nothing of a decoder may touch the memory behind them.
class AddressesOnly final : public Device {
 public:
  AddressesOnly() { traits_.granularity = kGranularity; }
  const DeviceTraits& traits() const override { return traits_; }
  Result<MemoryInfo> memory_info() const override { return none(); }
  Result<AddressRange> reserve(std::size_t bytes) override {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address that is mapped nowhere
    return AddressRange{reinterpret_cast<std::byte*>(std::uintptr_t{1} << 45), bytes};
  }
  void release(AddressRange) override {}
  Status back(AddressRange, std::size_t, std::size_t, const Backing&) override { return none(); }
  void unback(AddressRange, std::size_t, std::size_t) override {}
  Status protect(AddressRange, std::size_t, std::size_t, Protection) override { return none(); }
  Result<FileDescriptor> export_memory(AddressRange, std::size_t) override { return none(); }
  Result<std::byte*> take_host_memory(std::size_t) override { return none(); }
  void give_host_memory(std::byte*) override {}
  Status copy(Queue, CopyKind, void*, const void*, std::size_t) override { return none(); }
  Status mark(Queue, std::size_t) override { return none(); }
  Status wait(Queue, std::size_t) override { return none(); }
  Result<bool> reached(Queue, std::size_t) override { return none(); }
  Status wait_in(Queue, Queue, std::size_t) override { return none(); }
  Result<Duration> time_between(std::size_t, std::size_t) override { return none(); }
  Status synchronize(Queue) override { return none(); }
  Ops& ops() override { std::abort(); }
  Status begin_capture() override { return none(); }
  Result<OpList> end_listing() override { return none(); }
  Result<std::unique_ptr<Graph>> make_graph(OpList) override { return none(); }
  Status replay(const Graph&) override { return none(); }

 private:
  static Error none() { return unsupported("addresses only"); }
  DeviceTraits traits_;
};

Arena make_arena(Device& device) {
  ArenaPlan plan;
  plan.add(RegionKind::kWeights, "m/table", 4096);
  plan.add(RegionKind::kInputs, "m/ids", 256);
  plan.add(RegionKind::kWorkspace, "m/out", 1024);
  plan.finish(kGranularity);
  return *Arena::create(device, std::move(plan));
}

OpList forward(const Arena& arena, std::int32_t capacity) {
  EmbedParams embed;
  embed.table = matrix_view(arena.address(RegionKind::kWeights, "m/table"), DType::kF32, 4, 8);
  embed.token_ids = reinterpret_cast<std::int32_t*>(arena.address(RegionKind::kInputs, "m/ids"));
  embed.out = matrix_view(arena.address(RegionKind::kWorkspace, "m/out"), DType::kF32, capacity, 8);
  embed.rows.capacity = capacity;
  OpList list;
  list.append(embed);
  RmsNormParams norm;
  norm.residual = embed.out;
  norm.weight = vector_view(arena.address(RegionKind::kWeights, "m/table") + 256, DType::kF32, 8);
  norm.out = embed.out;
  norm.rows = embed.rows;
  list.append(norm);
  return list;
}

std::vector<std::byte> encode(const std::vector<OpList>& lists, const Arena& arena) {
  std::vector<const OpList*> pointers;
  for (const OpList& list : lists) pointers.push_back(&list);
  auto image = encode_op_lists(pointers, arena);
  CHECK(image.has_value());
  return *std::move(image);
}

void check(std::span<const std::byte> image, const Arena& arena) {
  const auto lists = decode_op_lists(image, arena);
  if (!lists) {
    CHECK(!lists.error().message.empty());
    return;
  }
  const auto again = decode_op_lists(encode(*lists, arena), arena);
  CHECK(again.has_value() && again->size() == lists->size());
  for (std::size_t i = 0; i < lists->size(); ++i) CHECK((*again)[i].hash() == (*lists)[i].hash());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static AddressesOnly device;
  static const Arena arena = make_arena(device);
  static const std::vector<std::byte> right =
      encode({forward(arena, 1), forward(arena, 2), forward(arena, 8)}, arena);
  const auto input = std::as_bytes(std::span(data, size));
  check(input, arena);
  std::vector<std::byte> changed = right;
  for (std::size_t i = 0; i + 2 < input.size(); i += 3) {
    const std::size_t at =
        std::to_integer<std::size_t>(input[i]) * 256 + std::to_integer<std::size_t>(input[i + 1]);
    changed[at % changed.size()] ^= input[i + 2];
  }
  check(changed, arena);
  return 0;
}
