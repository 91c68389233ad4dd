#include "device/read_back.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "device/host_buffer.h"

namespace sluice {
namespace {

using Visit = FunctionRef<void(std::span<const std::byte> piece)>;
constexpr std::size_t kBuffers = 2;
using Buffers = std::array<HostBuffer, kBuffers>;

Status copy_pieces(Device& device, const std::byte* from, std::size_t bytes, Visit visit,
                   std::size_t piece_bytes, const Buffers& buffers) {
  const auto size_at = [&](std::size_t offset) { return std::min(piece_bytes, bytes - offset); };
  const auto submit = [&](std::size_t offset, std::size_t buffer) -> Status {
    RETURN_IF_ERROR(device.copy_to_host(buffers[buffer].data(), from + offset, size_at(offset)));
    return device.mark(Queue::kCompute, buffer);
  };
  RETURN_IF_ERROR(submit(0, 0));
  std::size_t buffer = 0;
  for (std::size_t offset = 0; offset < bytes; offset += piece_bytes) {
    const std::size_t next = (buffer + 1) % kBuffers;
    if (bytes - offset > piece_bytes) RETURN_IF_ERROR(submit(offset + piece_bytes, next));
    RETURN_IF_ERROR(device.wait(Queue::kCompute, buffer));
    visit({buffers[buffer].data(), size_at(offset)});
    buffer = next;
  }
  return {};
}

}  // namespace

Status read_back(Device& device, const std::byte* from, std::size_t bytes, Visit visit,
                 std::size_t piece_bytes) {
  CHECK(piece_bytes > 0);
  if (bytes == 0) return {};
  if (device.traits().host_accessible) {
    RETURN_IF_ERROR(device.synchronize(Queue::kCompute));
    for (std::size_t offset = 0; offset < bytes; offset += piece_bytes) {
      visit({from + offset, std::min(piece_bytes, bytes - offset)});
    }
    return {};
  }
  Buffers buffers;
  for (HostBuffer& buffer : buffers) {
    ASSIGN_OR_RETURN(buffer, HostBuffer::create(device, piece_bytes));
  }
  const Status copied = copy_pieces(device, from, bytes, visit, piece_bytes, buffers);
  // In any case: a copy to the buffers may be running.
  const Status finished = device.synchronize(Queue::kCompute);
  return copied ? finished : copied;
}

}  // namespace sluice
